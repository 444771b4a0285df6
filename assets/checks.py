"""The checks of a model (profiling_jobs.training.checks) as Dagster's asset checks.

They run in the step that fits the model, before it is promoted, on the document that is registered. All are
blocking: one that fails ends the run there. A warning shows in yellow and stops nothing. A check that had too
little data is not evaluated: Dagster shows it as skipped, and the asset's metadata `checks` says what to
measure.
"""

from collections.abc import Sequence

import dagster as dg

from profiling_jobs.training.checks import CHECKS, TOO_LITTLE, CheckResult

from .metadata import figures

ABOUT = {
    "enough_points": "Enough was measured for a model.",
    "held_out_error": "Values that were left out are predicted well.",
    "abnormal_found": "Abnormal latencies are still called abnormal when they are left out.",
    "interval_coverage": "The 90 % intervals hold what was left out as often as they should.",
    "not_worse_than_naive": "The forecast is no worse than the better naive one, on the newest horizons.",
    "monotone": "More executors never sustain less, and latency never falls as the load grows.",
    "comes_back": "The job comes back from the failures that are promised.",
    "agrees_with_live": "The live job still shows the capacities that were profiled.",
    "agrees_with_drills": "The last drills recovered as a model without them predicts.",
}


def specs(kind: str) -> list[dg.AssetCheckSpec]:
    """The checks of `KIND_model`."""
    return [
        dg.AssetCheckSpec(name, asset=f"{kind}_model", description=ABOUT[name], blocking=True)
        for name in CHECKS[kind]
    ]


def evaluated(results: Sequence[CheckResult], *, job: str) -> list[dg.AssetCheckResult]:
    """The results of those that had enough data."""
    warn, error = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR
    return [
        dg.AssetCheckResult(
            check_name=one.name,
            passed=one.outcome == "passed",
            severity=warn if one.outcome == "warned" else error,
            description=f"{job}: {one.said}",
            metadata={"job": dg.MetadataValue.text(job), **figures(value=one.value, bound=one.bound)},
        )
        for one in results
        if one.outcome != TOO_LITTLE
    ]


def table(results: Sequence[CheckResult]) -> str:
    """All results as Markdown."""
    lines = ["| check | outcome | found | to make it firm |", "|---|---|---|---|"]
    for one in results:
        cells = (one.name.replace("_", " "), f"**{one.outcome}**", one.said, one.needs)
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines)
