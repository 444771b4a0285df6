"""The checks of a model (profiling_jobs.training.checks) as Dagster's asset checks.

They run in the step that fits the model, before it is promoted, on the document that is registered. All are
blocking: one that fails ends the run there. A warning shows in yellow and stops nothing. A check that had too
little data is not evaluated: Dagster shows it as skipped, and the asset's metadata `checks` says what to
measure.
"""

from collections.abc import Sequence

import dagster as dg

from profiling_jobs.training.checks import CHECKS, TOO_LITTLE, Verdict

from .metadata import figures

ABOUT = {
    "enough_points": "Was enough measured for a model at all?",
    "held_out_error": "How far off is it on values that were left out?",
    "abnormal_found": "Are abnormal latencies still called abnormal when they are left out?",
    "interval_coverage": "Do its 90 % intervals hold what was left out, as often as they should?",
    "not_worse_than_naive": "Is the forecast no worse than the better naive one, on the newest horizons?",
    "monotone": "Do more executors never sustain less, and does latency never fall as the load grows?",
    "comes_back": "Does the job come back from the failures that are promised?",
    "agrees_with_live": "Does the live job still show the capacities that were profiled?",
    "agrees_with_drills": "Do the last drills come out as the model, without having seen them, foretells?",
}


def specs(kind: str) -> list[dg.AssetCheckSpec]:
    """The checks of `KIND_model`."""
    return [
        dg.AssetCheckSpec(name, asset=f"{kind}_model", description=ABOUT[name], blocking=True)
        for name in CHECKS[kind]
    ]


def results(verdicts: Sequence[Verdict], *, job: str) -> list[dg.AssetCheckResult]:
    """How they came out."""
    return [
        dg.AssetCheckResult(
            check_name=verdict.name,
            passed=verdict.outcome == "passed",
            severity=dg.AssetCheckSeverity.WARN
            if verdict.outcome == "warned"
            else dg.AssetCheckSeverity.ERROR,
            description=f"{job}: {verdict.said}",
            metadata={
                "job": dg.MetadataValue.text(job),
                **figures(value=verdict.value, bound=verdict.bound),
            },
        )
        for verdict in verdicts
        if verdict.outcome != TOO_LITTLE
    ]


def table(verdicts: Sequence[Verdict]) -> str:
    """All results as Markdown."""
    lines = ["| check | outcome | found | to make it firm |", "|---|---|---|---|"]
    for one in verdicts:
        cells = (one.name.replace("_", " "), f"**{one.outcome}**", one.said, one.needs)
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines)
