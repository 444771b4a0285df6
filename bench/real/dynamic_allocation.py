"""Launch of the live job under Spark's own dynamic allocation: what a user would switch on instead.

`spark.dynamicAllocation.enabled` with shuffle tracking, between the sizes that Headroom may choose from. The
rest is as a user leaves it, Spark's defaults:

    initialExecutors          minExecutors
    schedulerBacklogTimeout   1 s: tasks have waited for so long, so one executor more is asked for; after
                              each further second of it (sustainedSchedulerBacklogTimeout) 2, 4, … more
    executorIdleTimeout       60 s without a task, and the executor is given up
    executorAllocationRatio   1: up to one slot for each task that runs or waits

Everything else of the job, Spark's time-outs included, is as in the other arms.

A user's configuration may not switch it on (`pipelines.integrations.spark_conf`), and the product's driver
asks for a fixed number of executors. So the driver itself is another one here (`dynamic_driver`), also when
it is started again after its death.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from models.errors import NotReady
from models.ports import Plan, Status
from pipelines.environments.local import drivers
from pipelines.server.live_jobs import START_S

from .lab import Lab

DRIVER = Path(__file__).with_name("dynamic_driver.py")
COMMAND = (sys.executable, "-P", str(DRIVER))
BOUNDS = ("spark.dynamicAllocation.minExecutors", "spark.dynamicAllocation.maxExecutors")


def possible(lab: Lab) -> bool:
    """The simulated environment has no dynamic allocation."""
    return lab.environment.kind == "local"


@contextmanager
def driven() -> Iterator[None]:
    """Drivers that are started meanwhile, by whatever part of the product, leave the size to Spark."""
    usual = drivers.COMMAND
    drivers.COMMAND = COMMAND
    try:
        yield
    finally:
        drivers.COMMAND = usual


def plan(lab: Lab, name: str) -> Plan:
    """The live job, declared at its largest size, so that the slots for it are kept free."""
    job, usual = lab.job(name), lab.plan(name)
    bounds = zip(BOUNDS, map(str, (job.scale_out_min, job.scale_out_max)), strict=True)
    return replace(usual, scale_out=job.scale_out_max, conf={**usual.conf, **dict(bounds)})


def launch(lab: Lab, name: str) -> None:
    """Start the job; done when its query runs on at least one executor."""
    here = lab.environment
    lab.say(f"starting {name} under Spark's dynamic allocation")
    here.deployments.launch(plan(lab, name))
    until_s = lab.now_s + START_S
    while (status := here.deployments.status(name)).state != "running" or not counted(status, before=0):
        if status.state == "failed" or lab.now_s > until_s:
            raise NotReady(f"{name} did not start under dynamic allocation: {status.reason or status.state}")
        here.clock.sleep(1.0)


def counted(status: Status, *, before: int) -> int:
    """Executors to be charged for: those that are registered.

    While the driver is away or silent they are as many as before, as a declared size stays in the other arms.
    """
    alive = status.executors_alive
    return alive if isinstance(alive, int) and alive > 0 else before
