"""One source for a job with several input topics: each topic gets its share of the rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.errors import HeadroomError
from models.ports import Source
from models.quantities import Misuse, Unknown


@dataclass(frozen=True)
class Sum:
    """What several sources were to send, and what they have sent."""

    achieved_rps: float | Unknown
    commanded_rps: float


class Together:
    """Several sources as one; a rate is divided between them in fixed shares."""

    def __init__(self, parts: Sequence[tuple[Source, float]]) -> None:
        total = sum(share for _, share in parts)
        if not parts or total <= 0.0 or any(share < 0.0 for _, share in parts):
            raise Misuse("parts", "needs shares of at least 0, not all of them zero")
        self._parts = [(source, share / total) for source, share in parts]

    def set_rate(self, rate_rps: float) -> float:
        """From the moment on that the last of them has changed."""
        return max(source.set_rate(rate_rps * share) for source, share in self._parts)

    def achieved(self, from_s: float, to_s: float) -> Sum:
        """All of them; Unknown as long as one is."""
        reports = [source.achieved(from_s, to_s) for source, _ in self._parts]
        commanded = sum(one.commanded_rps for one in reports)
        achieved = 0.0
        for one in reports:
            if isinstance(one.achieved_rps, Unknown):
                return Sum(one.achieved_rps, commanded)
            achieved += one.achieved_rps
        return Sum(achieved, commanded)

    def stop(self) -> None:
        """Stop all of them; the first problem is raised afterwards."""
        problems: list[HeadroomError] = []
        for source, _ in self._parts:
            try:
                source.stop()
            except HeadroomError as error:
                problems.append(error)
        if problems:
            raise problems[0]
