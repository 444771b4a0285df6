"""Capacity model from profiling: form of the curve, other plausible forms, and intervals.

**Choice of the form.** With ℓ_f the log evidence of a form (`folds`) below the best one's, ν the degrees of
freedom of the noise, and

    D = log ODDS + PATIENCE/ν        few measurements can look less noisy than they are, so they must say more
    plainest     = the first of linear, sqrt, log1p, power, usl within ℓ > −1
    rivals       = forms that do not say the same as the plainest one, to within SAME, from the smallest
                   size to twice the largest
    determined   = every rival has ℓ < −D
    undetermined = otherwise, with fewer than four sizes, or where sizes span less than a factor of two

Undetermined, everything within ℓ > −log ODDS is spanned and weighs exp ℓ, or all the same where only one
size can be held out. Determined, the interval is the plainest form's alone, unless rivals have ℓ > −D − NEAR:
these are spanned too, for a form is named most easily when the measurements happen to scatter little.

**Folds.** In fold j every form sees the j smallest sizes and predicts the larger ones:

    fold error      = √mean (T̂/r − 1)² over all held-out sizes of all folds, j = 2 … m − 1
    interval error  = share of the held-out rates outside the 90 % interval predicted for them
    log evidence    = Σ_j log p(rate at size j+1 | sizes 1 … j) = log p(all) − log p(the two smallest)
    p(sizes)        = mean over the shapes of (σ₀² + RSS)^(−runs/2)

The last is the density each form gave, before it was seen, to the next larger size, averaged over every
curve the smaller ones allow. A rich form spreads that density thin, so it wins only where plain ones
fail: linear is a case of power and of usl, and is not beaten by them on a straight line.


**Prediction.** Every form is fitted to all measurements (`curves`) and scored by its folds; then
either one is named or several are kept:

    log T̂(s) = Σ_f p_f log T̂_f(s),     interval(s) = from the lowest to the highest of the intervals that
                                        the spanned forms give, 90 %

**Lack of fit.** A form may speak only where it passes the F test of its residuals against repeated runs,

    F = (RSS/(m − parameters)) / s²,    s² = (REPEATS·σ₀² + scatter within sizes) / (REPEATS + runs − m)

at 5 %, and without any repeat with s = σ₀. Where none does, as at a ceiling of a sink or on a falling curve,
the curve without a form answers (`smooth`), between the measured sizes only, and opened there to any curve
that rises no faster than the slots. Without repeats it may also be a probe that is off: the interval then
spans both. It does so too where no form passes at 20 %, where only forms pass that have a single degree of
freedom, and without repeats in any case. The curve is held rising, unless the measurements fall by more than
their errors. Where a form passes and misses a size all the same, the interval of that size's own mean is
taken in. Two or three sizes hardly show the noise around a form: there the curve without a form answers at
them, and the forms between and beyond. Beyond the largest size nothing is said once the measurements no
longer rise there, and what forms say that do not pass at 20 % begins at what was measured.

Outside the measured sizes the answer is Unknown where plausible forms differ by more than a factor of two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from .. import codec
from ..arguments import Array, whole
from ..quantities import Interval, Json, Measurement, Misuse, Unknown, quantile_95
from .curves import (
    CONTRADICTION,
    FORMS,
    NOISE,
    PARAMETERS,
    STEADY,
    Curve,
    Evidence,
    Noise,
    best_of,
    checked,
    curve,
    effective_slots,
    gain_limit,
    gather,
    log_gain,
    noise_of,
)
from .smooth import Expected, Seen, fit_curve

_STEP = 0.01  # between shapes, in log gain: a third of NOISE
_SHARES = 13  # of φ, usl only


@dataclass(frozen=True)
class Folds:
    """Score of one form on held-out sizes."""

    fold_error: float | Unknown
    interval_error: float | Unknown
    log_evidence: float
    misfit: float  # RSS of the sizes' means around the form's best shape
    noise: Noise  # around the form's best shape, with one observation of NOISE
    ahead: float  # log rate at twice the largest size, to within a step or two


def folds(form: str, evidence: Evidence) -> Folds:
    """Score of one form that predicts every larger size from the smaller ones."""
    grid = _all_shapes(form, evidence.span)
    sizes = np.concatenate([evidence.sizes, evidence.bound_sizes])
    gains = log_gain(form, sizes, grid, smallest=float(evidence.sizes[0]), largest=float(evidence.sizes[-1]))
    count = len(evidence.sizes)
    free = evidence.log_rates - gains[:, :count]
    free = free - free[:, :1]
    weights = np.cumsum(evidence.weights)
    scale = np.cumsum(evidence.weights * free, axis=1) / weights
    # By the parallel axis theorem; rows are shapes, columns how many sizes were seen.
    rss = np.maximum(np.cumsum(evidence.weights * free**2, axis=1) - weights * scale**2, 0.0)
    misfit = float(rss[:, -1].min())
    log_evidence = _log_density(rss[:, -1] + _broken(evidence, gains, scale), evidence, seen=count)
    log_evidence -= _log_density(rss[:, min(1, count - 1)], evidence, seen=min(2, count))
    noise = noise_of(
        evidence, float(rss[:, -1].min()) + evidence.scatter, parameters=PARAMETERS[form], prior=1.0
    )
    best = best_of(grid, rss[:, -1])
    smallest, largest = float(evidence.sizes[0]), float(evidence.sizes[-1])
    twice = log_gain(form, np.array([2.0 * largest]), grid[best], smallest=smallest, largest=largest)
    ahead = float(scale[best, -1] + evidence.log_rates[0] - gains[best, 0] + twice[0])
    if count < 3:
        unknown = Unknown(f"needs at least three saturated sizes to leave one out, there are {count}")
        return Folds(unknown, unknown, log_evidence, misfit, noise, ahead)
    errors, outside = _held_out(grid, free, scale, rss, weights, evidence, noise)
    fold_error, interval_error = float(np.sqrt(np.mean(np.expm1(errors) ** 2))), float(np.mean(outside))
    return Folds(fold_error, interval_error, log_evidence, misfit, noise, ahead)


def _all_shapes(form: str, span: float) -> Array:
    limit = gain_limit(form, span)
    u = np.linspace(0.0, limit, max(math.ceil(limit / _STEP), 8) + 1)
    if form != "usl":
        return np.stack([u, np.zeros_like(u)], axis=1)
    u = u[::2]
    share = np.linspace(0.0, 1.0, _SHARES)
    return np.stack([np.repeat(u, len(share)), np.tile(share, len(u))], axis=1)


def _broken(evidence: Evidence, gains: Array, scale: Array) -> Array:
    """What the bounds add to RSS at the scale of the estimates; 0 where none is broken."""
    count = len(evidence.sizes)
    if not len(evidence.bound_sizes):
        return np.zeros(len(gains))
    curve = scale[:, -1] + (evidence.log_rates[0] - gains[:, 0])
    short = np.maximum(evidence.bound_logs - gains[:, count:] - curve[:, None], 0.0)
    return np.asarray((short**2) @ evidence.bound_weights)


def _log_density(rss: Array, evidence: Evidence, *, seen: int) -> float:
    runs = float(evidence.runs[:seen].sum())
    total = rss + evidence.scatter * runs / float(evidence.runs.sum())
    known = evidence.errors_known
    logs = -0.5 * total / NOISE**2 if known else -0.5 * runs * np.log(NOISE**2 + total)
    top = float(logs.max())
    return top + math.log(float(np.mean(np.exp(logs - top))))


def _held_out(
    grid: Array, free: Array, scale: Array, rss: Array, weights: Array, evidence: Evidence, noise: Noise
) -> tuple[Array, Array]:
    """Predicted over measured, in logs, and whether the measured rate lay outside the interval."""
    errors, outside = [], []
    for seen in range(2, free.shape[1]):
        least = rss[:, seen - 1]
        best = best_of(grid, least)
        allowed = least <= least[best] + noise.reach
        room = np.sqrt(least[best] + noise.reach - least[allowed])[:, None] / math.sqrt(weights[seen - 1])
        # ȳ − h − c is what is left of a held-out size when the curve's scale comes from the smaller ones.
        left = free[:, seen:] - scale[:, seen - 1, None]
        above = left[best] - np.min(left[allowed] - room, axis=0)
        below = np.max(left[allowed] + room, axis=0) - left[best]
        own = noise.reach / evidence.weights[seen:]
        errors.append(-left[best])
        outside.append((left[best] > np.sqrt(above**2 + own)) | (-left[best] > np.sqrt(below**2 + own)))
    return np.concatenate(errors), np.concatenate(outside)


UNDETERMINED = "undetermined"
ODDS = 50.0
"""Between "strong" (20) and "very strong" (150) evidence of Kass & Raftery 1995."""
PATIENCE = 12.0
"""With 2 degrees of freedom odds of e⁶ more are asked for, with 12 of e. Measured: without it a form was
named wrongly in up to 15 % of runs on six sizes, with it in less than 3 % (`bench capacity`)."""
NEAR = 2.0
"""A factor of e² around the border between named and open. Measured: without it intervals of forms that are
named only now and then cover 70–80 %."""
LEAST_SPAN = 2.0  # agreed: over less than a doubling all forms look straight
LEAST_SIZES = 4  # two to fit a curve, two to predict; judgement
SAME = 0.002
"""Forms closer than this are one: linear and power on a straight line. Judgement: below what can be probed.
A share of the interval's width instead would name a form just when its errors happen to be small."""
_SURELY_APART = 0.05  # more than SAME and twice the coarseness of `Folds.ahead`


REPEATS = 2.0
"""Runs' worth of NOISE in the estimate of the noise that a misfit is compared with, once there are repeats.
Judgement: few of them overrule it."""
REFUSED, DOUBTED = 1.645, 0.842
"""Quantiles of the normal distribution for 5 % and 20 %: of residuals so large by chance, at which a form is
refused, and not believed alone. Judgement."""


def fits(misfit: float, evidence: Evidence, *, parameters: int, z: float = REFUSED) -> bool:
    """Whether these residuals are no more than noise, by the F test (Paulson 1942)."""
    degrees = len(evidence.sizes) - parameters
    if degrees <= 0:
        return True
    a, b = 2.0 / (9.0 * degrees), 2.0 / (9.0 * repeats_of(evidence))
    root = math.sqrt((1.0 - b) ** 2 * a + (1.0 - a) ** 2 * b - a * b * z**2)
    limit = ((1.0 - a) * (1.0 - b) + z * root) / ((1.0 - b) ** 2 - b * z**2)
    return misfit / degrees <= limit**3 * pure_variance(evidence)


def has_repeats(evidence: Evidence) -> bool:
    """Whether the noise is known, by repeated runs or as it is given."""
    return evidence.errors_known or bool((evidence.runs > 1).any())


def repeats_of(evidence: Evidence) -> float:
    """Degrees of freedom of the noise: of repeated runs, or infinite where it is given or assumed."""
    if evidence.errors_known or not has_repeats(evidence):
        return 1e6
    return REPEATS + float(evidence.runs.sum()) - len(evidence.sizes)


def pure_variance(evidence: Evidence) -> float:
    """Variance of one run of weight 1, whatever the curve."""
    if evidence.errors_known or not has_repeats(evidence):
        return NOISE**2 + evidence.conflict
    return (REPEATS * NOISE**2 + evidence.scatter) / repeats_of(evidence) + evidence.conflict


@dataclass(frozen=True)
class Choice:
    """The named form, the weight of each form, the forms that are spanned, and their shared noise."""

    form: str
    scores: Mapping[str, Folds]
    weights: Mapping[str, float]  # sum to 1
    spanned: tuple[str, ...]
    noise: Noise | None  # None: the form's own
    fits: bool = True
    doubted: bool = False
    open_above: bool = False


def choose(forms: tuple[str, ...], evidence: Evidence) -> Choice:
    """Score the forms on held-out sizes, and keep those that cannot be distinguished."""
    scores = {f: folds(f, evidence) for f in forms}
    choice = _chosen_among(forms, scores, evidence)
    fitting = tuple(f for f in forms if fits(scores[f].misfit, evidence, parameters=PARAMETERS[f]))
    speaking = tuple(f for f in choice.spanned if f in fitting) or fitting
    if not speaking:
        return replace(choice, form=UNDETERMINED, fits=False)
    if speaking != choice.spanned and has_repeats(evidence):  # without them the noise is assumed
        equal = dict.fromkeys(speaking, 1.0 / len(speaking))
        choice = Choice(UNDETERMINED, scores, equal, speaking, _shared(equal, scores))
    believed = any(
        fits(scores[f].misfit, evidence, parameters=PARAMETERS[f], z=DOUBTED)
        for f in choice.spanned
        if len(evidence.sizes) < LEAST_SIZES or len(evidence.sizes) - PARAMETERS[f] > 1
    )
    alone = believed and (has_repeats(evidence) or len(evidence.sizes) < LEAST_SIZES)
    return replace(choice, doubted=len(forms) > 1 and not alone, open_above=len(forms) > 1 and not believed)


def _chosen_among(forms: tuple[str, ...], scores: Mapping[str, Folds], evidence: Evidence) -> Choice:
    best = max(s.log_evidence for s in scores.values())
    behind = {f: best - s.log_evidence for f, s in scores.items()}
    plausible = [f for f in forms if behind[f] < math.log(ODDS)]
    total = sum(math.exp(-behind[f]) for f in plausible)
    weights = {f: math.exp(-behind[f]) / total for f in plausible}
    few = len(evidence.sizes) < LEAST_SIZES or evidence.span < LEAST_SPAN
    if few:  # a single held-out size cannot rank forms that bend differently
        weights = dict.fromkeys(plausible, 1.0 / len(plausible))
    open_choice = Choice(UNDETERMINED, scores, weights, tuple(plausible), _shared(weights, scores))
    if evidence.span < LEAST_SPAN:
        return open_choice
    plainest = next(f for f in forms if behind[f] < 1.0)
    if len(forms) > 1:
        if few:
            return open_choice
        degrees = max(float(evidence.runs.sum()) - PARAMETERS[plainest], 1.0)
        needed = math.log(ODDS) + PATIENCE / degrees
        near = [f for f in forms if f != plainest and behind[f] < needed + NEAR]
        rivals = [f for f in near if abs(scores[f].ahead - scores[plainest].ahead) > _SURELY_APART]
        if any(behind[f] < needed for f in rivals):
            return open_choice  # the usual case, before any curve is fitted
        rivals = [f for f in near if f in rivals or not _same(plainest, f, evidence)]
        if any(behind[f] < needed for f in rivals):
            return open_choice
        if rivals:
            spanned = (plainest, *rivals)
            equal = dict.fromkeys(spanned, 1.0 / len(spanned))
            return Choice(plainest, scores, {plainest: 1.0}, spanned, _shared(equal, scores))
    return Choice(plainest, scores, {plainest: 1.0}, (plainest,), None)


def _shared(weights: Mapping[str, float], scores: Mapping[str, Folds]) -> Noise:
    """Mean noise of the forms, so that one that fits badly does not widen the interval."""
    variance = sum(share * scores[f].noise.variance for f, share in weights.items())
    return Noise(variance, min(scores[f].noise.degrees for f in weights))


def _same(plain: str, other: str, evidence: Evidence) -> bool:
    """Whether both predict the same over the sizes in question."""
    slots = np.append(evidence.sizes, evidence.sizes[-1] * np.array([1.5, 2.0]))
    mids = [curve(form, evidence, noise=None).log_rates(slots)[1] for form in (plain, other)]
    return bool((np.abs(mids[0] - mids[1]) <= SAME).all())


CONFIDENCE = 0.9
DISAGREEMENT = 2.0
"""Plausible forms may differ by this factor outside the measured sizes. Judgement: within it the interval
still tells where to probe; beyond it a decision would rest on the form that happened to be assumed."""
_GRID = 33  # points of the curve without a form; judgement: a tenth apart over a factor of 32
_USELESS = 10.0  # high/low; judgement: an interval this wide is a guess with a number on it


@dataclass(frozen=True)
class Candidate:
    """Prediction of one form, with its score on held-out sizes."""

    form: str
    fold_error: float | Unknown
    interval_error: float | Unknown
    plausibility: float
    _evidence: Evidence = field(repr=False, compare=False)
    _tasks: int | None = field(repr=False, compare=False)
    _noise: Noise | None = field(repr=False, compare=False)  # shared; None: its own

    def predict(self, scale_out: int) -> Interval | Unknown:
        slots = np.array([effective_slots(whole("scale_out", scale_out), self._tasks)])
        if len(self._evidence.sizes) < 2:
            return Unknown(f"one saturated size cannot show how a {self.form} curve rises")
        low, mid, high = self._curve.log_rates(slots)
        return _interval(low[0], mid[0], high[0])

    @cached_property
    def _curve(self) -> Curve:
        return curve(self.form, self._evidence, noise=self._noise)


@dataclass(frozen=True)
class CapacityModel:
    """Capacity over scale-outs, fitted on probes and on live measurements."""

    form: str
    """The form's name, or "undetermined"."""
    candidates: Mapping[str, Candidate]
    measurements: tuple[Measurement, ...]
    tasks: int | None
    _evidence: Evidence = field(repr=False, compare=False)
    _spanned: tuple[str, ...] = field(repr=False, compare=False)
    fits: bool = True
    """Whether one of the forms passes the test of lack of fit."""
    _doubted: bool = field(default=False, repr=False, compare=False)
    _open_above: bool = field(default=False, repr=False, compare=False)
    cautious: bool = False
    """Whether it answers with the highest rate that was sustained where nothing better is known."""
    _answers: dict[float, Interval | Unknown] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def fit(
        cls,
        measurements: Iterable[Measurement],
        forms: Iterable[str] | None = None,
        *,
        tasks: int | None = None,
        cautious: bool = False,
    ) -> Self:
        """Fit to measurements. `tasks`: Kafka or state partitions, where capacity moves in waves.

        `cautious`: a rate that was sustained stands for the capacity where nothing better is known. It is a
        lower bound: no size seems to do more than was seen. For jobs that carry far more than their load.
        """
        chosen = _chosen(forms)
        tasks = None if tasks is None else whole("tasks", tasks)
        measurements = checked(measurements)
        evidence = gather(measurements, tasks=tasks)
        if len(evidence.sizes) < 2:
            none = Unknown("a form shows only over several sizes at which the job was saturated")
            unfitted = {f: Candidate(f, none, none, 0.0, evidence, tasks, None) for f in chosen}
            among = MappingProxyType(unfitted)
            return cls(UNDETERMINED, among, measurements, tasks, evidence, (), cautious=cautious)
        choice = choose(chosen, evidence)
        candidates = {
            f: Candidate(
                f, s.fold_error, s.interval_error, choice.weights.get(f, 0.0), evidence, tasks, choice.noise
            )
            for f, s in choice.scores.items()
        }
        return cls(
            choice.form,
            MappingProxyType(candidates),
            measurements,
            tasks,
            evidence,
            choice.spanned,
            choice.fits,
            choice.doubted,
            choice.open_above,
            cautious,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_json, (self.to_json(),)

    @property
    def saturated_at(self) -> tuple[int, ...]:
        return self._evidence.scale_outs

    def is_bound(self, scale_out: int) -> bool:
        """Whether what it predicts there is a rate that was sustained, and the capacity may be far higher."""
        if not self.cautious:
            return False
        slots = effective_slots(scale_out, self.tasks)
        (found,) = self._answered(np.array([slots]))
        return isinstance(found, Unknown) and isinstance(self._bound(slots, found), Interval)

    def predict(self, scale_out: int | Unknown) -> Interval | Unknown:
        """Sustained rate at this scale-out (90 % interval), or the reason why it is unknown."""
        return self.predict_many([scale_out])[0]

    def predict_many(self, scale_outs: Sequence[int | Unknown]) -> tuple[Interval | Unknown, ...]:
        given = [s if isinstance(s, Unknown) else whole("scale_out", s) for s in scale_outs]
        wanted = {s: effective_slots(s, self.tasks) for s in given if isinstance(s, int)}
        new = sorted({x for x in wanted.values() if x not in self._answers})
        if new:
            found = self._answered(np.array(new))
            if self.cautious:
                found = [
                    self._bound(x, one) if isinstance(one, Unknown) else one
                    for x, one in zip(new, found, strict=True)
                ]
            self._answers.update(zip(new, found, strict=True))
        return tuple(s if isinstance(s, Unknown) else self._answers[wanted[s]] for s in given)

    def expected(
        self, scale_outs: Sequence[int], *, guess: Mapping[int, float] | None = None
    ) -> dict[int, Expected]:
        """What a search may expect of these scale-outs, and what one more probe at each would settle.

        By the curve without a form, which has an idea of every size, however far from what was measured.
        `guess`: scale-out -> rate, where there is an idea before anything is measured.
        """
        slots = [effective_slots(s, self.tasks) for s in scale_outs]
        guessed = {effective_slots(s, self.tasks): rate for s, rate in (guess or {}).items()}
        noise = math.sqrt(pure_variance(self._evidence))
        found = fit_curve(slots, self._seen, noise=noise, guess=guessed)
        columns = (found.log_mean.tolist(), found.log_deviation.tolist(), found.gain.tolist())
        return {s: Expected(*values) for s, *values in zip(scale_outs, *columns, strict=True)}

    def _answered(self, slots: Array) -> list[Interval | Unknown]:
        count = len(self._evidence.sizes)
        if count == 0:
            reason = self._nothing_saturated()
            return [Unknown(reason) for _ in slots]
        if count == 1:
            return [self._at_one_size(float(x)) for x in slots]
        counted = [self.candidates[f] for f in self._spanned]
        logs = np.array([c._curve.log_rates(slots) for c in counted])
        shares = np.array([c.plausibility for c in counted])
        # A product's sums would depend on how many are asked.
        mid = (shares[:, None] * logs[:, 1]).sum(axis=0)
        low, high = logs[:, 0].min(axis=0), logs[:, 2].max(axis=0)
        if self.fits:
            low, high = self._no_narrower_than_the_data(slots, low, high)
        few = len(self.candidates) > 1 and count < LEAST_SIZES
        if not self.fits or self._doubted:
            by_curve = np.array([np.interp(np.log(slots), self._curve[0], row) for row in self._curve[1:]])
            if not self.fits:
                # Without repeats the odd one out may also be a probe that is off.
                mid = by_curve[1] if has_repeats(self._evidence) else 0.5 * (mid + by_curve[1])
            if not self.fits and has_repeats(self._evidence):
                low, high = by_curve[0], by_curve[2]
            else:
                # What is doubted at the ends is not known better beyond them.
                low = np.where(slots <= self._evidence.sizes[-1], np.minimum(low, by_curve[0]), low)
                high = np.where(slots >= self._evidence.sizes[0], np.maximum(high, by_curve[2]), high)
        if self._open_above:  # it may have reached its ceiling
            level = float(self._evidence.log_rates[-1]) - float(self._own_half[-1])
            low = np.where(slots > self._evidence.sizes[-1], np.minimum(low, level), low)
        width = high - low
        if few and self.fits:
            low, mid, high = self._through_the_curve(slots, low, mid, high)
        answers: list[Interval | Unknown] = []
        for i, x in enumerate(slots):
            refused = self._refused(counted, float(x), logs[:, 1, i], float(width[i]))
            answers.append(_interval(low[i], mid[i], high[i]) if refused is None else refused)
        return answers

    def _refused(self, counted: list[Candidate], slots: float, mids: Array, width: float) -> Unknown | None:
        smallest, largest = float(self._evidence.sizes[0]), float(self._evidence.sizes[-1])
        if smallest <= slots <= largest:
            if width <= math.log(_USELESS):
                return None
            return Unknown(
                f"no form fits the measurements at {', '.join(map(str, self._evidence.scale_outs))}: at "
                f"{slots:.3g} they allow rates a factor of {math.exp(width):.2g} apart; look for a broken "
                "probe among them and repeat it"
            )
        measured = f"measured at {', '.join(map(str, self._evidence.scale_outs))}"
        remedy = f"probe at or near {slots:.3g} {'executors' if self.tasks is None else 'busy slots'}"
        if not self.fits:
            return Unknown(
                f"capacity at {slots:.3g} is open: no form fits what was {measured}, so nothing is known "
                f"beyond; {remedy}"
            )
        logs = self._evidence.log_rates
        if slots > largest and len(self.candidates) > 1 and logs[-1] <= logs[-2]:
            return Unknown(
                f"capacity at {slots:.3g} is open: {measured}, and it no longer rises there, so it may fall "
                f"beyond; {remedy}"
            )
        if float(np.ptp(mids)) > math.log(DISAGREEMENT):
            rates = ", ".join(f"{c.form} {math.exp(mid):.4g}" for c, mid in zip(counted, mids, strict=True))
            return Unknown(
                f"capacity at {slots:.3g} is open: {measured}, and beyond it the forms that fit differ by "
                f"more than a factor of {DISAGREEMENT:g} (records/s: {rates}); {remedy}"
            )
        if width > math.log(_USELESS):
            return Unknown(
                f"capacity at {slots:.3g} is open: {measured}, which allows values a factor of "
                f"{math.exp(width):.2g} apart; {remedy}"
            )
        return None

    @cached_property
    def _curve(self) -> tuple[Array, Array, Array, Array]:
        """Log slots, and the low, mid and high log rates there of the curve without a form."""
        evidence = self._evidence
        ends = float(evidence.sizes[0]), float(evidence.sizes[-1])
        slots = np.unique(np.concatenate([np.geomspace(*ends, _GRID), evidence.sizes]).clip(*ends))
        found = fit_curve(slots.tolist(), self._seen, noise=math.sqrt(pure_variance(evidence)))
        quantile = quantile_95(repeats_of(evidence))
        if len(evidence.sizes) < LEAST_SIZES and pure_variance(evidence) <= NOISE**2:
            quantile = quantile_95(math.inf)  # a few repeats that agree take nothing from what was assumed
        half = quantile * found.log_deviation
        low, mid, high = found.log_mean - half, found.log_mean, found.log_mean + half
        low, high = _bent_between(np.log(slots), low, high, np.log(evidence.sizes))
        if bool((np.maximum.accumulate(low) <= np.minimum.accumulate(high[::-1])[::-1]).all()):
            low, mid, high = _held_rising(np.log(slots), low, mid, high, np.log(evidence.sizes))
        return np.log(slots), low, mid, high

    @cached_property
    def _seen(self) -> list[Seen]:
        """The measurements as the curve without a form takes them, in an order of their own."""
        variance, growth = pure_variance(self._evidence), self._evidence.growth
        seen = []
        for m in self.measurements:
            if m.throughput_rps > 0.0:
                x = effective_slots(m.scale_out, self.tasks)
                error = (m.standard_error_rps or 0.0) / m.throughput_rps
                grown = 0.0 if growth is STEADY else math.sqrt(variance * growth.variance(x))
                seen.append(Seen(x, m.throughput_rps, m.sustained, relative_error=max(error, grown)))
        return sorted(seen, key=lambda one: (one.slots, one.sustained, one.rps, one.relative_error))

    @property
    def _own_half(self) -> Array:
        """Half-width of each size's own interval, in logs."""
        evidence = self._evidence
        half: Array = quantile_95(repeats_of(evidence)) * np.sqrt(pure_variance(evidence) / evidence.weights)
        return half

    def _no_narrower_than_the_data(self, slots: Array, low: Array, high: Array) -> tuple[Array, Array]:
        """Where the interval of a size's own mean lies outside of the forms', it is taken in."""
        evidence = self._evidence
        counted = [self.candidates[f] for f in self._spanned]
        logs = np.array([c._curve.log_rates(evidence.sizes) for c in counted])
        own = self._own_half
        below = evidence.log_rates + own < logs[:, 0].min(axis=0)
        above = evidence.log_rates - own > logs[:, 2].max(axis=0)
        for x, y, half in zip(evidence.sizes[below], evidence.log_rates[below], own[below], strict=True):
            low = np.where(slots <= x, np.minimum(low, y - half), low)
        for x, y, half in zip(evidence.sizes[above], evidence.log_rates[above], own[above], strict=True):
            high = np.where(slots >= x, np.maximum(high, y + half), high)
        return low, high

    def _through_the_curve(self, slots: Array, *rows: Array) -> tuple[Array, ...]:
        """Low, mid and high of the forms, held to those of the curve without a form at the measured sizes.

        So few sizes show the noise around a form hardly, or not at all.
        """
        measured, (at, *curve) = self._evidence.sizes, self._curve
        left = np.searchsorted(measured, slots, side="right")
        right = np.searchsorted(measured, slots, side="left") + 1
        ends = [np.concatenate([[-np.inf], np.interp(np.log(measured), at, c), [np.inf]]) for c in curve]
        return tuple(np.clip(row, end[left], end[right]) for row, end in zip(rows, ends, strict=True))

    def _bound(self, slots: float, otherwise: Unknown) -> Interval | Unknown:
        """The highest rate that was sustained with so many slots or fewer, unless fewer can do more."""
        evidence = self._evidence
        smaller = evidence.bound_logs[evidence.bound_sizes <= slots]
        saturated = evidence.log_rates[evidence.sizes <= slots]
        if not smaller.size or (saturated.size and smaller.max() < saturated.max()):
            return otherwise
        rate = math.exp(float(smaller.max()))
        return Interval(rate, rate, rate, CONFIDENCE)

    def _at_one_size(self, slots: float) -> Interval | Unknown:
        evidence = self._evidence
        size, rate = float(evidence.sizes[0]), float(evidence.log_rates[0])
        where = ", ".join(map(str, evidence.scale_outs))
        if slots != size:
            return Unknown(
                f"saturated only at scale-out {where}, where about {math.exp(rate):.4g} records/s came "
                "through; one size does not show how capacity rises: probe a second one"
            )
        for x, bound in zip(evidence.bound_sizes, evidence.bound_logs, strict=True):
            if x <= size and bound > rate + math.log1p(CONTRADICTION):
                return Unknown(
                    f"at {x:.3g} slots {math.exp(bound):.4g} records/s were sustained, at {where} the job "
                    f"was saturated at {math.exp(rate):.4g}: more carried less, probe both again"
                )
        noise = noise_of(evidence, evidence.scatter, parameters=1, prior=float(evidence.runs[0] < 3))
        half = quantile_95(noise.degrees) * math.sqrt(noise.variance / float(evidence.weights[0]))
        return _interval(rate - half, rate, rate + half)

    def _nothing_saturated(self) -> str:
        if not self._evidence.bounded:
            return "nothing was measured yet: profile the job, or wait until live stretches are learnt"
        bounds = ", ".join(f"{rate:.4g} at {scale_out}" for scale_out, rate in self._evidence.bounded)
        return (
            f"the job was never saturated, capacity is only known to be at least (records/s) {bounds}: "
            "probe at higher rates"
        )

    def to_json(self) -> dict[str, Any]:
        """The measurements and the choices made, as plain JSON; the curves follow from them."""
        return {
            "schema": 1,
            "model": "capacity",
            "forms": list(self.candidates),
            "tasks": self.tasks,
            "form": self.form,
            "cautious": self.cautious,
            "measurements": codec.to_json(self.measurements),
        }

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """The model, fitted again from its measurements in milliseconds with numpy alone."""
        if data.get("schema") != 1 or data.get("model") != "capacity":
            raise Misuse(
                "data", f"is not a capacity model of schema 1: {data.get('model')!r}, {data.get('schema')!r}"
            )
        return cls.fit(
            codec.from_json(tuple[Measurement, ...], data["measurements"], name="measurements"),
            data["forms"],
            tasks=data["tasks"],
            cautious=data.get("cautious", False),
        )


def _held_rising(
    x: Array, low: Array, mid: Array, high: Array, measured: Array
) -> tuple[Array, Array, Array]:
    """An interval that never falls. At measured sizes it is widened for that, as of several ends on a level
    stretch the extreme one is off by chance; there the middle lies halfway between the largest so far and the
    smallest to come. Between measured sizes all three keep within their neighbours."""
    at = np.searchsorted(x, measured - 1e-9)
    left = np.searchsorted(measured, x + 1e-9) - 1
    right = np.searchsorted(measured, x - 1e-9)

    def within(values: Array, ends: Array) -> Array:
        return np.clip(values, ends[left], ends[right])

    mids = 0.5 * (_raised(mid[at]) + _lowered(mid[at]))
    low = _lowered(within(low, _lowered(low[at])))
    high = _raised(within(high, _raised(high[at])))
    return low, np.clip(_raised(within(mid, mids)), low, high), high


def _raised(values: Array) -> Array:
    """Each raised to the largest so far."""
    return np.asarray(np.maximum.accumulate(values))


def _lowered(values: Array) -> Array:
    """Each lowered to the smallest to come."""
    return np.asarray(np.minimum.accumulate(values[::-1])[::-1])


def _bent_between(x: Array, low: Array, high: Array, measured: Array) -> tuple[Array, Array]:
    """The interval opened between measured sizes to any curve that rises there, and no faster than the slots.

    A ceiling may begin anywhere between two of them.
    """
    at = np.searchsorted(x, measured - 1e-9)
    left = np.clip(np.searchsorted(measured, x + 1e-9) - 1, 0, len(measured) - 2)
    before, after = at[left], at[left + 1]
    least = np.maximum(np.minimum(low[before], low[after]), low[after] + x - x[after])
    most = np.minimum(np.maximum(high[before], high[after]), high[before] + x - x[before])
    inside = (x > x[before] + 1e-9) & (x < x[after] - 1e-9)
    return np.where(inside, np.minimum(low, least), low), np.where(inside, np.maximum(high, most), high)


def _interval(low: float, mid: float, high: float) -> Interval:
    return Interval(math.exp(low), math.exp(mid), math.exp(high), CONFIDENCE)


def _chosen(forms: Iterable[str] | None) -> tuple[str, ...]:
    if forms is None:
        return FORMS
    given = list(forms) if isinstance(forms, Iterable) and not isinstance(forms, str) else [forms]
    unknown = [f for f in given if not isinstance(f, str) or f not in FORMS]
    if unknown or not given:
        raise Misuse("forms", f"must be some of {', '.join(FORMS)}, got {given!r}")
    return tuple(f for f in FORMS if f in given)
