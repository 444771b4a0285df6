"""Coverage and width of 90 % capacity intervals, and how often the form of a curve is named rightly."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping

import numpy as np

from bench import Figure
from bench._truths_capacity import (
    CEILINGS,
    DESIGNS,
    FALLING,
    OUTSIDE,
    TRUTHS,
    Design,
    LiveJob,
    Truth,
)
from models.capacity import CapacityModel, OnlineCapacity
from models.capacity.online import said_live
from models.quantities import Interval, Unknown

SEEDS = 500
FEWER = 200  # for what is only reported
FEW = 50  # fits; of fewer the share that is covered is not a figure
BAND = 1.5 * (0.9 * 0.1 / SEEDS) ** 0.5  # binomial: what 500 seeds of exactly 90 % may fall short


class Tally:
    """Coverage, width and errors of many fits, for each asked scale-out."""

    def __init__(self, truth: Truth, design: Design) -> None:
        self.truth = np.array([truth.rate(s) for s in design.asked])
        self.form, self.asked = truth.form, design.asked
        self.named: list[str] = []
        self.inside: list[list[float]] = []
        self.widths: list[list[float]] = []
        self.errors: list[list[float]] = []

    def add(self, model: CapacityModel) -> None:
        answers = model.predict_many(self.asked)
        self.named.append(model.form)
        known = [None if isinstance(a, Unknown) else a for a in answers]
        self.inside.append(
            [np.nan if a is None else a.low <= t <= a.high for a, t in zip(known, self.truth, strict=True)]
        )
        self.widths.append([np.nan if a is None else (a.high - a.low) / a.mid for a in known])
        self.errors.append(
            [np.nan if a is None else abs(a.mid / t - 1) for a, t in zip(known, self.truth, strict=True)]
        )

    def coverage(self, determined: bool | None = None) -> tuple[int, float, float]:
        """How many fits, and their lowest and highest coverage over the asked scale-outs."""
        names = np.array(self.named)
        chosen = np.full(len(names), True) if determined is None else (names != "undetermined") == determined
        rows = np.array(self.inside)[chosen]
        if not len(rows):
            return 0, np.nan, np.nan
        shares = np.nanmean(rows, axis=0)
        return int(chosen.sum()), float(shares.min()), float(shares.max())


def run(truth: Truth, design: Design, seeds: int, *, forms: list[str] | None = None, **noise: float) -> Tally:
    tally = Tally(truth, design)
    for seed in range(seeds):
        tally.add(CapacityModel.fit(truth.measured(design, seed, **noise), forms))  # type: ignore[arg-type]
    return tally


def given_form() -> Iterable[Figure]:
    """The caller names the right form: the interval is the small-sample interval alone."""
    for name, design in DESIGNS.items():
        low, high, widths = 1.0, 0.0, []
        for truth in TRUTHS.values():
            tally = run(truth, design, SEEDS, forms=[str(truth.form)])
            _, least, most = tally.coverage()
            low, high = min(low, least), max(high, most)
            widths.append(np.nanmedian(tally.widths, axis=0)[[2, 3]])
        yield Figure(f"{name}, form given: lowest coverage of any curve and place", low, "", at_least=0.85)
        yield Figure(f"{name}, form given: highest", high, "", at_most=0.95)
        inside, twice = np.median(widths, axis=0)
        yield Figure(f"{name}, form given: median width, inside", 100 * inside, "%")
        yield Figure(f"{name}, form given: median width, at twice the largest", 100 * twice, "%")


def free_form(
    truths: Mapping[str, Truth], label: str, *, held: bool = False, **noise: float
) -> Iterable[Figure]:
    """The folds choose: coverage where a form was named and where none was."""
    seeds = SEEDS if held else FEWER
    for name, design in DESIGNS.items():
        tallies = {t: run(truth, design, seeds, **noise) for t, truth in truths.items()}
        counted = [t.coverage(True) for t in tallies.values()]
        named = [c for c in counted if c[0] >= seeds / 2]
        rarely = [c for c in counted if FEW <= c[0] < seeds / 2]
        left = [c for c in (t.coverage(False) for t in tallies.values()) if c[0] >= seeds / 2]
        share = np.mean([np.mean(np.array(t.named) != "undetermined") for t in tallies.values()])
        wrong = max(np.mean([n not in ("undetermined", t.form) for n in t.named]) for t in tallies.values())
        yield Figure(f"{name}, {label}: share of fits with a form named", float(share), "")
        yield Figure(f"{name}, {label}: share of a wrong name, worst curve", float(wrong), "")
        if named:
            least, most = min(n[1] for n in named), max(n[2] for n in named)
            yield Figure(
                f"{name}, {label}, named: lowest coverage", least, "", at_least=0.85 if held else None
            )
            yield Figure(f"{name}, {label}, named: highest", most, "", at_most=0.95 if held else None)
        if rarely:
            least = min(n[1] for n in rarely)
            yield Figure(f"{name}, {label}, named in less than half of the fits: lowest coverage", least, "")
        if left:
            least = min(n[1] for n in left)
            yield Figure(
                f"{name}, {label}, undetermined: lowest coverage",
                least,
                "",
                at_least=0.9 - BAND if held else None,
            )
        widths = np.nanmedian([np.nanmedian(t.widths, axis=0) for t in tallies.values()], axis=0)
        errors = np.nanmean([np.nanmean(t.errors, axis=0) for t in tallies.values()], axis=0)
        unknown = np.mean([np.isnan(np.array(t.widths)[:, -1]) for t in tallies.values()])
        yield Figure(f"{name}, {label}: median width, inside", 100 * float(widths[2]), "%")
        yield Figure(f"{name}, {label}: median width, at twice the largest", 100 * float(widths[3]), "%")
        yield Figure(f"{name}, {label}: mean error, inside", 100 * float(errors[2]), "%")
        yield Figure(f"{name}, {label}: mean error, at twice the largest", 100 * float(errors[3]), "%")
        yield Figure(f"{name}, {label}: share refused at twice the largest", float(unknown), "")


HARD: Mapping[str, tuple[Mapping[str, Truth], Mapping[str, float]]] = {
    "the five forms": (TRUTHS, {}),
    "a ceiling": (CEILINGS, {}),
    "a falling curve": (FALLING, {}),
    "noise that grows with size": (TRUTHS, {"noise": 0.02, "growth": 0.5}),
    "one outlier in six": (TRUTHS, {"outliers": 1 / 6}),
}


def hard(seeds: int = FEWER) -> Iterable[Figure]:
    """Coverage at every measured size and between them, where nothing is known of form or noise."""
    for case, (truths, noise) in HARD.items():
        for name, design in DESIGNS.items():
            if "outliers" in noise and len(design.sizes) * design.repeats < 6:
                continue
            asked = [*design.within, 2 * design.sizes[-1]]
            lowest, everywhere, beyond, known, widths = 1.0, [], 1.0, [], []
            for truth in truths.values():
                rates = [truth.rate(s) for s in asked]
                inside, there, width = [], [], []
                for seed in range(seeds):
                    answers = CapacityModel.fit(truth.measured(design, seed, **noise)).predict_many(asked)
                    there.append([isinstance(a, Interval) for a in answers])
                    inside.append(
                        [
                            isinstance(a, Interval) and a.low <= t <= a.high
                            for a, t in zip(answers, rates, strict=True)
                        ]
                    )
                    width += [(a.high - a.low) / a.mid for a in answers[:-1] if isinstance(a, Interval)]
                count = np.sum(there, axis=0)
                shares = np.where(count > FEW / 2, np.sum(inside, axis=0) / np.maximum(count, 1), np.nan)
                lowest = min(lowest, float(np.nanmin(shares[:-1], initial=1.0)))
                everywhere.append(float(np.nanmean(shares[:-1])))
                beyond = min(beyond, float(np.nanmin(shares[-1:], initial=1.0)))
                known.append(float(np.mean(np.array(there)[:, :-1])))
                widths.append(float(np.median(width)))
            yield Figure(f"{case}, {name}: lowest coverage of any curve and size", lowest, "", at_least=0.85)
            yield Figure(f"{case}, {name}: mean coverage", float(np.mean(everywhere)), "")
            yield Figure(f"{case}, {name}: coverage at twice the largest, where it speaks", beyond, "")
            yield Figure(f"{case}, {name}: share known, within", min(known), "", at_least=0.8)
            yield Figure(f"{case}, {name}: median width, within", 100 * float(np.median(widths)), "%")


LIVE: Mapping[str, LiveJob] = {
    "limited by CPU": LiveJob(),
    "CPU read with a scatter": LiveJob(cpu_noise=0.03),
    "batches that get cheaper": LiveJob(bend=1.3),
    "batches that get dearer": LiveJob(bend=0.8),
    "limited by waiting": LiveJob(limit=0.6),
    "twelve workers": LiveJob(workers=12),
    "twelve workers, one of them noisy": LiveJob(workers=12, noisy=1),
}


def online_cases(seeds: int = FEWER) -> Iterable[Figure]:
    """Whatever makes a line mislead: coverage wherever the online capacity speaks."""
    for (name, job), limiting in itertools.product(LIVE.items(), (False, True)):
        if limiting and job.limit < 1.0:
            continue  # then the share was not of what runs out first
        for count, swing in ((120, 0.1), (1800, 0.2)):
            inside, widths = [], []
            for seed in range(seeds):
                cpu, rates = job.samples(count, seed, swing=swing, swing_s=20.0)
                total = said_live(OnlineCapacity(limiting=limiting).update(cpu, rates), job.workers)
                if isinstance(total, Interval):
                    inside.append(total.low <= job.capacity <= total.high)
                    widths.append((total.high - total.low) / total.mid)
            share = "busy share" if limiting else "CPU"
            label = f"online, {name}, {count} s of {share} within 0.35 ± {swing:g}"
            if len(inside) >= FEW / 2:
                yield Figure(f"{label}: coverage", float(np.mean(inside)), "", at_least=0.85)
                yield Figure(f"{label}: median width", 100 * float(np.median(widths)), "%")
            spoken = len(inside) / seeds
            fleet = name.startswith("twelve")
            yield Figure(f"{label}: share that speaks", spoken, "", at_least=0.95 if fleet else None)


def live() -> Iterable[Figure]:
    """The online capacity from CPU below 0.6, with a prior and without one, as in the product."""
    job = LiveJob()
    for weight in (1.0, 0.0):
        name = f"online, prior weight {weight:g}"
        for count, swing in ((60, 0.01), (600, 0.1), (1800, 0.2)):
            errors, inside = [], []
            for seed in range(FEWER):
                online = OnlineCapacity(prior_weight=weight).update(*job.samples(count, seed, swing=swing))
                total = online.total()
                if isinstance(total, Unknown):
                    continue
                errors.append(abs(total.mid / job.capacity - 1.0))
                inside.append(total.low <= job.capacity <= total.high)
            label = f"{name}, {count} s of CPU within 0.35 ± {swing:g}"
            converged = count == 1800 and weight > 0.0
            error = 100 * float(np.percentile(errors, 95))
            yield Figure(f"{label}: 95th percentile error", error, "%", at_most=5.0 if converged else None)
            yield Figure(f"{label}: coverage", float(np.mean(inside)), "")
            yield Figure(f"{label}: share unknown", 1.0 - len(errors) / FEWER, "")


def timing() -> Iterable[Figure]:
    """Seconds of this process, so that neighbours do not count."""
    for name, design in DESIGNS.items():
        given = [TRUTHS["usl, light"].measured(design, seed) for seed in range(40)]
        began = time.process_time()
        models = [CapacityModel.fit(m) for m in given]
        fitted = time.process_time()
        for model in models:
            model.predict_many(range(1, 257))
        asked = time.process_time()
        yield Figure(f"{name}: fit", (fitted - began) / len(given) * 1e3, "ms", at_most=10.0)
        yield Figure(f"{name}: 256 predictions", (asked - fitted) / len(given) * 1e3, "ms")


def measure() -> Iterable[Figure]:
    yield from timing()
    yield from live()
    yield from online_cases()
    yield from hard()
    yield from given_form()
    yield from free_form(TRUTHS, "3 % noise", held=True)
    for noise in (0.01, 0.06):
        some = {name: TRUTHS[name] for name in ("linear", "log1p", "power 0.8", "usl, light")}
        yield from free_form(some, f"{noise:.0%} noise", noise=noise)
    yield from free_form({"power 0.8": TRUTHS["power 0.8"]}, "heavy tails", heavy_tails=True)
    yield from free_form(OUTSIDE, "curves of no form of ours")
