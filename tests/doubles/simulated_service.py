"""A simulated environment with a server in the test's own process."""

import time
from contextlib import contextmanager

from pipelines.environments import base
from pipelines.server.in_process import InProcessServer
from pipelines.settings import loading
from profiling_jobs.orders import run_order

SIMULATED = """
[deployment]
kind = "simulated"
[spark]
slots = 8
"""
ORDERS = f"""{SIMULATED}
[job.orders]
build = "a:b"
inputs = {{events = "in"}}
outputs = {{alerts = "out"}}
max_offsets_per_trigger = 2000
warm_up_s = 10
"""


class Service:
    """What tests ask of the environment and of the server or its client."""

    def __init__(self, environment, here, server, folder):
        self.environment, self.here, self.server, self.folder = environment, here, server, folder

    def launched(self, rate_rps=700.0):
        result = run_order(self.server, "launch", "orders")
        self.environment.flow("in", rate_rps)
        return result

    def passes(self, seconds):
        """Wait for simulated time, which the server's threads move."""
        until = self.environment.clock.now_s() + seconds
        while self.environment.clock.now_s() < until:
            time.sleep(0.002)

    def drilled(self, **details):
        return run_order(self.server, "drill", "orders", **details)

    def change(self, **settings):
        jobs = self.here.context.settings.jobs
        jobs["orders"] = jobs["orders"].model_copy(update=settings)

    def copies(self):
        return [name for name in self.environment.deployments.names() if name not in ("orders", "clicks")]

    def scratch(self):
        return [topic for topic in self.environment.broker.topics() if topic.startswith("headroom.")]


@contextmanager
def opened(folder, toml, *, since_s=None, speed=None):
    """`speed` bounds how fast simulated time passes."""
    settings = loading.parse(toml, environment={})
    with (
        base.opened(settings, folder, since_s=since_s) as environment,
        InProcessServer(environment, settings, folder) as server,
    ):
        if speed is not None:
            environment.pace.set(speed)
        yield Service(environment, server, server, folder)
