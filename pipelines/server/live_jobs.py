"""Orders to the live job itself: launch, stop, and apply a change of size."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from models.errors import Misconfigured, NotReady
from models.quantities import executors
from profiling_jobs.control_loop import applying
from profiling_jobs.orders import Apply, Details

from ..settings import job_plans
from ..settings.concerns import default_state_partitions
from .context import LOOK_S, Context, Found
from .order_queue import Order

START_S = 240.0  # measured: 14–46 s until the first batch on an idle machine


def launch(context: Context, order: Order, details: Details) -> Found:
    """Start the job, with its topics where the broker is ours; done when all of its executors work.

    A job that has failed is started again.
    """
    environment, name, job = context.environment, order.job, context.job(order)
    plan = job_plans.live_plan(name, job, folder=context.folder)
    if name in environment.deployments.names():
        status = environment.deployments.status(name)
        if status.state != "failed":
            order.say(f"{name} was launched before, and is {status.state}")
            return {"launched": False, "state": status.state, "scale_out": status.declared_scale_out}
        order.say(f"{name} has failed ({status.reason}): starting it again")
        environment.deployments.stop(name)
    if environment.own_topics:
        there, wanted = environment.broker.topics(), environment.partitions(plan, job)
        for own, topic in (*plan.inputs.items(), *plan.outputs.items()):
            if topic not in there and "/" not in topic:
                order.say(f"making the topic {topic} with {wanted[own]} partitions")
                environment.broker.create(topic, partitions=wanted[own])
    if environment.kind != "simulated" and not Path(plan.checkpoint).exists():
        most = max(environment.partitions(plan, job)[own] for own in plan.inputs)
        spark = context.settings.spark
        for one in default_state_partitions(job, f"job.{name}", spark, topic_partitions=most):
            order.say(f"{one.path} {one.problem}; {one.fix}")
    order.say(f"starting {name} with {executors(plan.scale_out)}")
    clock = context.clock(order)
    context.started_at_s[name] = clock.now_s()
    environment.deployments.launch(plan)
    until_s = clock.now_s() + START_S
    while True:
        status = environment.deployments.status(name)
        if status.state == "running" and status.executors_alive == plan.scale_out:
            order.say(f"{name} runs with {executors(plan.scale_out)}")
            return {"launched": True, "state": status.state, "scale_out": plan.scale_out}
        if status.state == "failed":
            raise Misconfigured(f"job.{name}", status.reason)
        if clock.now_s() > until_s:
            raise NotReady(f"{name} is still {status.state} after {START_S:.0f} s: {status.reason}")
        clock.sleep(LOOK_S)


def stop(context: Context, order: Order, details: Details) -> Found:
    """Stop the job between two batches."""
    if order.job not in context.environment.deployments.names():
        return {"stopped": False}
    order.say(f"stopping {order.job} between two batches")
    context.environment.deployments.stop(order.job)
    return {"stopped": True}


def apply(context: Context, order: Order, details: Apply) -> Found:
    """Carry out the change of size that the evaluation of this epoch has ordered."""
    settings = context.control_settings(order.job)
    loop = replace(context.loop, clock=context.clock(order))
    done = applying.apply(order.job, epoch=details.epoch, settings=settings, loop=loop, holder=order.id)
    order.say(done.reason)
    return asdict(done)
