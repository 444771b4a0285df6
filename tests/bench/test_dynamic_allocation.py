"""The live job of `bench.real promises` under Spark's own dynamic allocation, without Spark."""

import pytest

from bench.real import dynamic_allocation, dynamic_driver
from bench.real.lab import LIVE, Lab, Lengths, settings
from models.errors import Misconfigured, Unsafe
from models.ports import Status
from models.quantities import Unknown
from pipelines.environments.local import drivers
from pipelines.integrations.spark_conf import job_conf
from pipelines.settings.schema import SparkSettings
from profiling_jobs.brokers import Brokers
from profiling_jobs.driver.launch_file import LaunchFile

pytestmark = pytest.mark.fast


def test_an_arm_that_spark_sizes_is_charged_for_the_executors_that_it_has():
    """While the driver is away, the number of before counts on, as a declared size does."""
    unknown, counted = Unknown("the driver does not answer"), []
    for alive in (1, 2, 4, 0, unknown, 1, 3):
        status = Status("running", 4, alive, "run")
        counted.append(dynamic_allocation.counted(status, before=counted[-1] if counted else 0))
    assert counted == [1, 2, 4, 4, 4, 1, 3]


def test_only_the_drivers_of_that_arm_leave_the_size_to_spark(tmp_path):
    lab = Lab(None, settings(), tmp_path, journal=None, lengths=Lengths(), say=print)
    asked = dynamic_allocation.plan(lab, LIVE)
    own = {"settings": SparkSettings(), "place": {}}
    conf = job_conf(LIVE, conf=asked.conf, **own)
    assert [conf[key] for key in dynamic_allocation.BOUNDS] == ["1", "4"]
    assert conf["spark.dynamicAllocation.enabled"] == "false"
    with pytest.raises(Misconfigured, match="dynamicAllocation"):
        job_conf(LIVE, conf={"spark.dynamicAllocation.enabled": "true"}, **own)

    usual = drivers.COMMAND
    with dynamic_allocation.driven():
        assert drivers.COMMAND[-1].endswith("dynamic_driver.py")
    assert usual == drivers.COMMAND
    launch = LaunchFile(asked, Brokers("h:1"), tmp_path, 1, tmp_path, conf)
    conf = dynamic_driver.Driver(launch).launch.conf
    assert conf["spark.dynamicAllocation.enabled"] == "true"
    assert conf["spark.dynamicAllocation.shuffleTracking.enabled"] == "true"
    assert conf["spark.decommission.enabled"] == "false"  # Spark's default, as a user would leave it
    with pytest.raises(Unsafe, match="sets the number"):
        object.__new__(dynamic_driver.Counted).settle(4, timeout_s=1.0)
