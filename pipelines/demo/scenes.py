"""The job of the demo, its promise, and its load.

`enrichment`, a benchmark job, waits about a millisecond per record, so that its capacity grows with the
executors also on two cores. The simulated job behaves as the real one was measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

JOB = "enrichment"


@dataclass(frozen=True)
class Scene:
    """What happens to the job, and how fast simulated time passes."""

    settings: str
    """Its headroom.toml; on a cluster the part of the job."""
    before_rps: float
    after_rps: float
    ramp_s: float
    """How long the load takes from one to the other."""
    ticks_before: int
    """Evaluations before the first stage."""
    record_s: float
    drill_repeats: int
    live_drill: bool = False
    """On the live job, which needs no copy; otherwise on copies of its size under its load."""
    proved: bool = True
    """Whether the failures are caused once more at the end."""
    most_ticks: int = 60
    """Intervals until a decision, or until it is verified; then the demo fails."""
    speed: float = 1.0
    """Simulated seconds per second."""
    speed_of_changes: float = 1.0
    """The same while decisions are made and carried out."""
    head_start_s: float = 0.0
    """How long ago simulated time begins."""


MARK = "# Written by `headroom demo`"
"""Begins every headroom.toml of a demo."""

_HEAD = """; change what you like and run `headroom serve` on it.
[deployment]
kind = "{kind}"

[spark]
slots = 14

"""
_JOB = """\
[job.enrichment]
build = "profiling_jobs.jobs.enrichment:build"
inputs = {{events = "{topic}"}}
outputs = {{results = "{results}"}}
events = "generator:enrichment?count=300000"
max_offsets_per_trigger = {limit}
state_partitions = 12
mode = "apply"
recovery_target_s = 120
confidence = 0.9
failure_kinds = ["{failure}"]
"""
_LIVE_DRILLS = "allow_live_drills = true\n"

SIMULATED = (
    MARK
    + _HEAD.format(kind="simulated")
    + _JOB.format(topic="orders", results="enriched-orders", limit=2000, failure="driver_kill")
    + _LIVE_DRILLS
    + """\
scale_out = 2
scale_out_max = 6
evaluation_interval_s = 30
scale_in_window_s = 1800
profile_scale_outs = [1, 2, 4, 6]
profile_budget_executor_s = 4000
probe_s = 60
warm_up_s = 20
"""
)

_SMALL = """\
scale_out = 1
scale_out_max = 4
evaluation_interval_s = 10
scale_in_window_s = 1800
profile_scale_outs = [1, 2]
profile_most_probes = 1
profile_budget_executor_s = 1500
probe_s = 15
warm_up_s = 15

# One compiler pass: as fast as it gets within seconds, so that a short probe sees what a long one would.
[job.enrichment.conf]
"spark.sql.adaptive.enabled" = "false"
"spark.sql.adaptive.streaming.stateless.enabled" = "false"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1"
"spark.executor.extraJavaOptions" = "-XX:TieredStopAtLevel=1"
"""

LOCAL = (
    MARK
    + _HEAD.format(kind="local")
    + _JOB.format(topic="orders", results="enriched-orders", limit=2000, failure="executor_kill")
    + _LIVE_DRILLS
    + "profile_guess_rps = 900\n"
    + _SMALL
)

# Follows the settings of the cluster. On brokers of others the names of topics say whose they are.
KUBERNETES = (
    _JOB.format(
        topic="headroom-demo-orders",
        results="headroom-demo-enriched-orders",
        limit=2000,
        failure="executor_kill",
    )
    + "profile_guess_rps = 600\n"
    + _SMALL
)

# Ten minutes on two cores, each JVM of which takes seconds to start: small sizes, and one drill.
_SMALL_SCENE = Scene(
    LOCAL,
    before_rps=300.0,
    after_rps=600.0,
    ramp_s=30.0,
    ticks_before=1,
    record_s=10.0,
    drill_repeats=1,
    live_drill=True,
    proved=False,
    most_ticks=20,
)
SCENES = {
    "simulated": Scene(
        SIMULATED,
        before_rps=600.0,
        after_rps=1000.0,
        ramp_s=300.0,
        ticks_before=30,
        record_s=120.0,
        drill_repeats=4,
        speed=200.0,
        speed_of_changes=40.0,
        head_start_s=3.0 * 3600.0,
    ),
    "local": _SMALL_SCENE,
    # Live jobs of a cluster are drilled only with a right of its own.
    "kubernetes": replace(_SMALL_SCENE, settings=KUBERNETES, live_drill=False),
}
