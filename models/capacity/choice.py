"""Is the form known, and which others must the interval still allow for?

With ℓ_f the log evidence of a form (`folds`) below the best one's, ν the degrees of freedom of the noise, and

    D = log ODDS + PATIENCE/ν        few measurements can look less noisy than they are, so they must say more
    plainest     = the first of linear, sqrt, log1p, power, usl within ℓ > −1
    rivals       = forms that do not say the same as the plainest one, to within SAME, from the smallest
                   size to twice the largest
    determined   = every rival has ℓ < −D
    undetermined = otherwise, or with fewer than four sizes, or when sizes span less than a factor of two

Undetermined, everything within ℓ > −log ODDS is spanned and weighs exp ℓ, or all the same where only one
size can be held out. Determined, the interval is the plainest form's alone, unless rivals have ℓ > −D − NEAR:
these are spanned too, for a form is named most easily when the measurements happen to scatter little.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .brackets import Evidence
from .curves import Noise, curve
from .folds import Folds, folds
from .forms import PARAMETERS

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
LEAST_SIZES = 4  # two to fix a curve, two to foretell; judgement
SAME = 0.002
"""Forms closer than this are one: linear and power on a straight line. Judgement: below what can be probed.
A share of the interval's width instead would name a form just when its errors happen to be small."""
_SURELY_APART = 0.05  # more than SAME and twice the coarseness of `Folds.ahead`


@dataclass(frozen=True)
class Choice:
    """The named form, what each form weighs in the middle, which are spanned, and the noise they share."""

    form: str
    scores: Mapping[str, Folds]
    weights: Mapping[str, float]  # sum to 1
    spanned: tuple[str, ...]
    noise: Noise | None  # None: the form's own


def choose(forms: tuple[str, ...], evidence: Evidence) -> Choice:
    """Let the forms foretell the larger sizes, and keep those that cannot be told apart."""
    scores = {f: folds(f, evidence) for f in forms}
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
    """What the forms take for noise, on average: one that fits badly must not be wide for that."""
    variance = sum(share * scores[f].noise.variance for f, share in weights.items())
    return Noise(variance, min(scores[f].noise.degrees for f in weights))


def _same(plain: str, other: str, evidence: Evidence) -> bool:
    """Do both say the same wherever one would ask?"""
    slots = np.append(evidence.sizes, evidence.sizes[-1] * np.array([1.5, 2.0]))
    mids = [curve(form, evidence, noise=None).log_rates(slots)[1] for form in (plain, other)]
    return bool((np.abs(mids[0] - mids[1]) <= SAME).all())
