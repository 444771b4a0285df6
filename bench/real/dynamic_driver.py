"""Driver of a job whose number of executors is set by Spark's own dynamic allocation. Run as a file.

The product's driver with two differences: it switches dynamic allocation on, and it neither asks for
executors nor ends any, since two that set the size would undo each other's changes. It counts them.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from models.errors import Unsafe
from profiling_jobs import runner
from profiling_jobs.driver.executors import Executors
from profiling_jobs.driver.launch_file import LaunchFile

CONF = {
    "spark.dynamicAllocation.enabled": "true",
    # Spark's own default; without it, or an external shuffle service, Spark does not start.
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    # Spark's own default, too. Headroom switches it on for its own changes; beside shuffle tracking Spark
    # warns that idle executors would be released late.
    "spark.decommission.enabled": "false",
}


class Counted(Executors):
    """The executors that Spark has asked for."""

    def claim(self, count: int) -> None:
        """Nothing: with dynamic allocation an application gets no executor before it asks for one."""

    def settle(self, count: int, *, timeout_s: float) -> float:
        raise Unsafe("Spark's dynamic allocation sets the number of executors of this job")


class Driver(runner.Driver):
    """One run of a program, with as many executors as Spark finds right."""

    def __init__(self, launch: LaunchFile) -> None:
        super().__init__(replace(launch, conf={**launch.conf, **CONF}))

    def _settle(self, executors: Executors) -> None:
        """Nothing: there is no size to wait for."""


if __name__ == "__main__":
    runner.Executors, runner.Driver = Counted, Driver  # this process is the driver alone
    runner.main(sys.argv[1:])
