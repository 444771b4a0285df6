"""Settings of hypothesis and of Java for all tests, and fixtures that fill a store for model fits.

Property tests run on the same examples every time. `HEADROOM_NEW_EXAMPLES=1 make test` tries new ones, and
keeps those that fail in `.hypothesis/`. No example has a deadline, because the machine may be busy.

A shell script that starts pytest in the background makes it ignore Ctrl-C; the handlers are restored here.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

settings.register_profile(
    "new examples", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile(
    "fixed examples", settings.get_profile("new examples"), derandomize=True, database=None
)
if os.environ.get("HEADROOM_NEW_EXAMPLES") != "1":
    # Hypothesis also tries constants of the modules that are loaded: which ones, other tests decide.
    providers._get_local_constants = lambda: providers._local_constants
settings.load_profile("new examples" if os.environ.get("HEADROOM_NEW_EXAMPLES") == "1" else "fixed examples")

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Java machines of tests live for seconds: their start is what they cost, and not how fast they are at last.
BRIEF = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
os.environ.setdefault("JDK_JAVA_OPTIONS", BRIEF)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the long tests evenly: processes that share the rest would wait for one that begins late."""
    long = [item for item in items if "long" in item.keywords]
    for number, item in enumerate(long):
        items.remove(item)
        items.insert(number * len(items) // len(long), item)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """What workers were running when they were interrupted: nobody has asked their fixtures to end it."""
    if hasattr(session.config, "workerinput") or exitstatus != pytest.ExitCode.INTERRUPTED:
        return
    from pipelines.processes.owner import cleanup

    for worker in session.config._tmp_path_factory.getbasetemp().glob("popen-*"):
        for folder in worker.glob("*/.headroom"):
            cleanup(folder, end_owner=True)


@pytest.fixture
def no_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out latencies, which take nine tenths of a simulation's time; probes compute their own."""
    from models.quantities import Unknown
    from models.simulation import sampling

    none = Unknown("left out")
    monkeypatch.setattr(sampling, "_p95_ms", lambda *arguments: none)


@pytest.fixture(scope="session")
def real_java() -> Any:
    """A Java, or a skipped test that says why."""
    from models.errors import Misconfigured
    from pipelines.integrations import java

    try:
        return java.find()
    except Misconfigured as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def real_postgres() -> Iterator[Any]:
    """A Postgres server, or a skipped test that says how to install one."""
    from postgres_server import INSTALL, PostgresServer, binaries

    if (programs := binaries()) is None:
        pytest.skip(INSTALL)
    server = PostgresServer(programs)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def lived() -> Callable[..., None]:
    """A job that was profiled, drilled and watched: fills a store with what its truth would have shown."""
    from models import probing
    from models.probing import Probe, Result
    from models.quantities import RecoveryEvent
    from models.recovery import batch_recovery_seconds, first_batch_start_s
    from profiling_jobs.experiments.profiling_record import Record
    from profiling_jobs.training import workload_history

    at_s, overhead_s, limit = 1_763_474_400.0, 0.5, 20_000.0

    class Clock:
        def now_s(self) -> float:
            return at_s

        def sleep(self, seconds: float) -> None:
            raise AssertionError("nothing waits here")

    def bare(size: int) -> float:
        return 4000.0 * size**0.85

    def sustained(size: int) -> float:
        return limit / (overhead_s + limit / bare(size))

    def fill(
        store: Any,
        job: str = "orders",
        *,
        sizes: tuple[int, ...] = (1, 2, 4, 6, 8),
        drills: int = 6,
        hours: float = 4.0,
        seed: int = 1,
    ) -> None:
        rng = np.random.default_rng(seed)

        def measure(probe: Probe) -> Result:
            most = sustained(probe.scale_out) * float(rng.normal(1.0, 0.015))
            kept = probe.rate_rps <= most
            busy = min(probe.rate_rps / most, 1.3)
            return Result(
                probe,
                "sustained" if kept else "not sustained",
                offered_rps=probe.rate_rps,
                throughput_rps=min(probe.rate_rps, most),
                latency_ms=900.0 / (1.4 - busy) * float(rng.uniform(0.95, 1.05)),
            )

        if sizes:
            record = Record(job, store, Clock())
            state, _ = record.begin(
                probing.Settings(scale_outs=sizes, warm_up_s=60.0, probe_s=60.0, first_rate_rps=4000.0)
            )
            state = probing.run(state, measure)
            for size in sizes:
                batches = [(n, overhead_s + n / bare(size)) for n in (2e3, 5e3, 1e4, 1.5e4, 2e4, 4e3, 8e3)]
                record.note_batches(size, batches)
            record.save(state)
            for result in state.results:
                record.keep(result)
        for number in range(drills):
            size = sizes[1:][number % len(sizes[1:])]
            rate, down = 0.5 * sustained(size), 12.0 * float(rng.lognormal(0.0, 0.2))
            engine = {"overhead_s": overhead_s, "limit_records": limit}
            start = first_batch_start_s(
                np.array([down]), arrival_rps=rate, capacity_rps=bare(size), lag_records=rate, **engine
            )
            recovery = batch_recovery_seconds(
                np.full(900, rate),
                capacity_rps=bare(size),
                trigger_s=0.0,
                downtime_s=start,
                lag_records=rate,
                band_s=3.0,
                **engine,
            )
            failed_at_s = at_s + 4000.0 + 600.0 * number
            event = RecoveryEvent("executor_kill", size, failed_at_s, down, float(recovery[0]))
            details = {"rate_rps": rate, "lag_before_records": rate, "band_s": 3.0, "longest_s": 900.0}
            store.add_event(job, event, details={"on": "copy", **details})
        if hours:
            n = round(hours * 360)
            waves = 9000.0 + 3000.0 * np.sin(np.arange(n) / 540.0 * 2.0 * np.pi)
            rates = waves + rng.normal(0.0, 300.0, n)
            workload_history.remember(store, job, start_s=at_s - n * 10.0, step_s=10.0, rates_rps=rates)

    return fill


@pytest.fixture
def muddled() -> Callable[..., None]:
    """A profile that no curve fits: something else ran on the machine."""
    from models.quantities import Measurement

    def fill(store: Any, job: str = "orders") -> None:
        for number, (size, rate) in enumerate(((1, 1e3), (2, 5e3), (4, 5.2e3), (8, 3e4)) * 2):
            run = Measurement(size, 1.5 * rate, rate * (1.0 + 0.01 * number), False, duration_s=60.0)
            store.add_measurement(job, f"profile-1-{number}", run, at_s=1_763_474_400.0 + number)

    return fill
