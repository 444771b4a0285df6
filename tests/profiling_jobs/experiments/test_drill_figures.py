"""What a failure has cost, read off a curve of lag."""

from itertools import accumulate, cycle, takewhile

import pytest
from samples import offsets, sample

from models.ports import Commit
from profiling_jobs.experiments import drill
from profiling_jobs.experiments.drill import Undisturbed
from profiling_jobs.telemetry.timeline import Timeline

pytestmark = pytest.mark.fast

AT_S = 1e6  # epoch seconds
RATE_RPS, SAMPLE_S = 1000.0, 0.5
SEEN_FROM_S, FAILED_S, DOWN_S, SEEN_S = 40.0, 141.0, 40.0, 260.0


def lived_through(batches_s):
    """Batches back to back, each with what had come before it began; one is lost with the driver."""
    ends = list(takewhile(lambda end_s: end_s <= FAILED_S, accumulate(cycle(batches_s))))
    back_s = FAILED_S + DOWN_S
    ends += [back_s + end_s for end_s in takewhile(lambda end_s: end_s < 80.0, accumulate(cycle([5.0])))]
    begins = [0.0, *ends[:-1]]
    timeline, done, ends_seen = Timeline(), 0, 0
    for number in range(1, int(SEEN_S / SAMPLE_S) + 1):
        now_s = number * SAMPLE_S
        commits = []
        while ends_seen < len(ends) and ends[ends_seen] <= now_s:
            done = int(
                RATE_RPS * (back_s if begins[ends_seen] < FAILED_S < ends[ends_seen] else begins[ends_seen])
            )
            commits.append(Commit(ends_seen, AT_S + ends[ends_seen], offsets(done)))
            ends_seen += 1
        head = int(RATE_RPS * now_s)
        timeline.add(
            sample(
                AT_S + now_s,
                offsets(head),
                committed=offsets(done),
                lag_records=head - done,
                last_batch=ends_seen,
                commits=tuple(commits),
            )
        )
    return timeline


def figures(batches_s):
    """What was normal; recovery and downtime."""
    timeline, failed_s = lived_through(batches_s), AT_S + FAILED_S
    before = drill.undisturbed(
        timeline,
        AT_S + SEEN_FROM_S,
        failed_s - SAMPLE_S,
        trigger_s=0.0,
        max_lag_s=90.0,
    )
    assert isinstance(before, Undisturbed), before
    recovery_s = drill.recovery_s(timeline, before, failed_at_s=failed_s, until_s=AT_S + SEEN_S)
    return before, recovery_s, drill.downtime_s(timeline, failed_at_s=failed_s)


@pytest.mark.parametrize(
    "batches_s", [[5.0] * 10, [5.0] * 4 + [15.0] + [5.0] * 6, [2.0] * 9 + [22.0]], ids=["even", "one", "rare"]
)
def test_no_job_has_recovered_before_it_works_again(batches_s):
    before, recovery_s, downtime_s = figures(batches_s)
    assert before.hold_s > before.band_s
    assert downtime_s == pytest.approx(DOWN_S + 5.0, abs=SAMPLE_S)
    assert downtime_s <= recovery_s < 80.0
