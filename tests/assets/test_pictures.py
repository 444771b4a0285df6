"""Every picture can be drawn, also of a job of which little or nothing is known."""

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from assets import plots
from assets.plots import style
from assets.plots.timeline import held
from models.capacity import CapacityModel
from models.downtime import DowntimeModel
from models.latency import LatencyModel
from models.quantities import Interval, Measurement, RecoveryEvent, Unknown
from models.series import Grid
from models.workload import fit_forecast
from profiling_jobs.training.checks import Drilled


def runs(*sizes: int, latency: bool = True) -> list[Measurement]:
    return [
        Measurement(
            size,
            1000.0 * size**0.9 * share,
            1000.0 * size**0.9 * min(share, 1.0),
            share < 1.0,
            latency_ms=300.0 / (1.5 - share) if latency else None,
            duration_s=60.0,
        )
        for size in sizes
        for share in (0.5, 0.9, 1.2)
    ]


def seconds(low: float, mid: float, high: float) -> Interval:
    return Interval(low, mid, high, 0.9)


def evaluation(minute: int, **more: object) -> dict[str, object]:
    return {
        "at_s": 1_763_474_400.0 + 60.0 * minute,
        "interval_s": 60.0,
        "mode": "apply",
        "scale_out": 4,
        "instruction": {"do": "hold", "to": None, "would": None, "reason": "it fits"},
        "alarms": [],
        "observation": {"arrival_rps": 9000.0},
        "capacity": {"used": {"low": 11e3, "mid": 12e3, "high": 13e3}},
        "forecast": {"peak": {"high": 10e3}},
        "lag_s": 1.0,
        "promise": {"target_s": 180.0},
        "decision": {"scale_out": 4},
        **more,
    }


NOTHING = {"unknown": "nobody answered"}
BLIND = dict.fromkeys(("scale_out", "lag_s", "decision", "forecast"), NOTHING)
LONG = Measurement(4, 3000.0, 3000.0, True, duration_s=600.0, origin="live")
BROKEN = RecoveryEvent("driver_kill", 2, 0.0, math.inf, math.inf)
DRILL = Drilled("executor_kill", 4, 0.0, 40.0, seconds(30.0, 42.0, math.inf))

CASES: dict[str, Callable[[], bytes]] = {
    "capacity": lambda: plots.capacity(
        CapacityModel.fit([*runs(1, 2, 4, 8), LONG]), job="orders", candidates=range(1, 13)
    ),
    "capacity of one size": lambda: plots.capacity(
        CapacityModel.fit(runs(2)), job="orders", candidates=(1, 2)
    ),
    "capacity of nothing": lambda: plots.capacity(CapacityModel.fit([]), job="orders"),
    "capacity of 256 sizes": lambda: plots.capacity(
        CapacityModel.fit(runs(1, 2)), job="orders", candidates=range(1, 257)
    ),
    "latency": lambda: plots.latency(
        LatencyModel.fit(runs(1, 2, 4), CapacityModel.fit(runs(1, 2, 4))), job="orders", bound_ms=500.0
    ),
    "latency of nothing": lambda: plots.latency(
        LatencyModel.fit([], CapacityModel.fit(runs(1, 2))), job="orders"
    ),
    "recovery": lambda: plots.recovery(
        {
            "executor_kill": {2: seconds(20.0, 30.0, 90.0), 3: Unknown("not probed")},
            "driver_kill": {2: seconds(60.0, math.inf, math.inf), 3: Unknown("not probed")},
        },
        job="orders",
        target_s=60.0,
        promised=0.95,
        rate_rps=1000.0,
    ),
    "recovery of nothing": lambda: plots.recovery(
        {}, job="orders", target_s=60.0, promised=0.9, rate_rps=0.0
    ),
    "downtime": lambda: plots.downtime(
        DowntimeModel.fit([BROKEN] * 40), job="orders", kinds=("executor_kill", "driver_kill")
    ),
    "downtime of nothing": lambda: plots.downtime(DowntimeModel.fit(), job="orders"),
    "drills": lambda: plots.drills([DRILL], job="orders", target_s=60.0),
    "a drill that never recovered": lambda: plots.drills(
        [DRILL, Drilled("driver_kill", 2, 0.0, math.inf, seconds(30.0, 42.0, 60.0))], job="orders"
    ),
    "no drills": lambda: plots.drills([], job="orders"),
    "forecast": lambda: plots.forecast(
        fit_forecast([100.0, 110.0] * 20, step_s=10.0, horizon_s=60.0),
        job="orders",
        history=Grid(0.0, 10.0, np.array([100.0, math.nan] * 20)),
    ),
    "forecast of one value": lambda: plots.forecast(
        fit_forecast([0.0], step_s=10.0, horizon_s=60.0),
        job="orders",
        history=Grid(0.0, 10.0, np.array([0.0])),
    ),
    "timeline": lambda: plots.timeline(
        [
            evaluation(0),
            evaluation(1, instruction={"do": "scale", "to": 6}, alarms=["behind"]),
            evaluation(2, **BLIND, observation={"arrival_rps": NOTHING}, capacity={}),
        ],
        job="orders",
    ),
    "timeline with a gap": lambda: plots.timeline([evaluation(0), evaluation(90)], job="orders"),
    "timeline of one": lambda: plots.timeline([evaluation(0)], job="orders"),
    "timeline of a job to which nothing has come": lambda: plots.timeline(
        [evaluation(0, observation={"arrival_rps": 0.0}, capacity={}, forecast={})], job="orders"
    ),
    "timeline of nothing": lambda: plots.timeline([], job="orders"),
}


@pytest.mark.parametrize("case", CASES)
def test_it_can_be_drawn(case: str) -> None:
    found = CASES[case]()
    assert found.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", found[16:24])
    assert width <= 770  # what MLflow's page has room for; it cuts off the rest
    assert 400 < height < 770
    assert len(found) < 300_000  # it lies in every event of its asset


@pytest.mark.fast
def test_nothing_is_drawn_while_nothing_was_evaluated() -> None:
    found = held([evaluation(0), evaluation(1), evaluation(90), evaluation(91)])
    first = float(found[0]["at_s"])
    seen = [((one["at_s"] - first) / 60.0, one["observation"].get("arrival_rps")) for one in found]
    assert seen == [
        (0, 9000.0),
        (1, 9000.0),
        (2, 9000.0),
        (2, None),
        (90, 9000.0),
        (91, 9000.0),
        (92, 9000.0),
    ]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("value", "said"), [(0.0, "0"), (999.0, "999"), (12_345.0, "12.3k"), (2.5e6, "2.5M"), (1e9, "1G")]
)
def test_rates_are_short(value: float, said: str) -> None:
    assert style.short(value) == said


class TestSparkline:
    """Dagster shows Markdown of less than a thousand characters without a click."""

    def evaluation(self, number: int, **more: Any) -> dict[str, Any]:
        seen = {"at_s": 60.0 * number, "scale_out": 2 + number // 40, "interval_s": 60.0}
        return {
            **seen,
            "observation": {"arrival_rps": 600.0 + 97.0 * (number % 7)},
            "capacity": {"used": {"mid": 1200.0 + number}},
            **more,
        }

    @pytest.mark.parametrize("count", [2, 3, 48, 96, 400])
    def test_any_history_is_drawn_in_so_few_characters(self, count: int) -> None:
        drawn = plots.sparkline([self.evaluation(number) for number in range(count)], job="o" * 39)
        assert 300 < len(drawn) < 1000
        assert drawn.startswith("![the last evaluations of ooo")
        assert not set(drawn.partition("](")[2]) & set(' <>"#')

    def test_what_is_not_known_leaves_a_gap(self) -> None:
        unknown = {"unknown": "not read"}
        seen = [
            self.evaluation(0),
            self.evaluation(1, observation={"arrival_rps": unknown}),
            self.evaluation(2),
        ]
        assert plots.sparkline(seen, job="orders").count("M0,") == 3
        assert "M320," in plots.sparkline(seen, job="orders")

    def test_one_evaluation_is_no_line(self) -> None:
        assert plots.sparkline([self.evaluation(0)], job="orders") == ""
