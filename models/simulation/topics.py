"""The simulated broker: what has arrived in each partition, exactly and at any moment.

Between two changes of its rate the end of a partition grows steadily, so that end offsets at any time, and
the arrival time of any offset, are exact and need no steps. Record k (from 0) has arrived when the end has
reached k + 1. While the broker is away nothing arrives; producers wait, and all of it comes at its return.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arguments import Array, number, numbers, whole
from ..errors import BrokerSilent, Misconfigured, Unsafe
from ..ports import Offsets
from ..quantities import Misuse

Whole = NDArray[np.int64]
LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
ROUNDING = 1e-4  # of a record: a sum of rates × seconds may fall short of a whole number


class Topic:
    """One topic: the ends of its partitions at each change (`times_s`, `ends`), and how they grow since."""

    def __init__(self, partitions: int, *, at_s: float) -> None:
        self.times_s = [at_s]
        self.ends: list[Array] = [np.zeros(partitions)]
        self.rates = np.zeros(partitions)
        self.starts: Whole = np.zeros(partitions, dtype=np.int64)
        self.away_s: float | None = None
        """The broker is away; up to here its producers have counted what they hold."""
        self.held = np.zeros(partitions)

    @property
    def partitions(self) -> int:
        return self.rates.size

    def reached(self, at_s: float) -> Array:
        """The ends at a moment, parts of records included."""
        if at_s >= self.times_s[-1]:
            if self.away_s is not None:
                return self.ends[-1]
            result: Array = self.ends[-1] + self.rates * (at_s - self.times_s[-1])
            return result
        after = bisect_right(self.times_s, at_s)
        if after == 0:
            return np.zeros(self.partitions)
        before_s, span_s = self.times_s[after - 1], self.times_s[after] - self.times_s[after - 1]
        share = (at_s - before_s) / span_s if span_s > 0.0 else 1.0
        between: Array = self.ends[after - 1] + share * (self.ends[after] - self.ends[after - 1])
        return between

    def end(self, at_s: float) -> Whole:
        return np.floor(self.reached(at_s) + ROUNDING).astype(np.int64)

    def arrived_s(self, partition: int, offset: int) -> float:
        """When this record arrived; inf for one that never will."""
        want = offset + 1.0 - ROUNDING / 2
        last = self.ends[-1][partition]
        if want > last:
            rate = self.rates[partition]
            if rate <= 0.0 or self.away_s is not None:
                return np.inf
            return math.nextafter(self.times_s[-1] + (want - last) / float(rate), math.inf)
        after = bisect_left(self.ends, want, key=lambda ends: ends[partition])
        if after == 0:
            return self.times_s[0]
        low, high = self.ends[after - 1][partition], self.ends[after][partition]
        before_s, after_s = self.times_s[after - 1], self.times_s[after]
        then_s = before_s + float((want - low) / (high - low)) * (after_s - before_s)
        return min(after_s, math.nextafter(then_s, math.inf))  # epoch seconds are coarse: never too early

    def before(self, at_s: float) -> Whole:
        first = bisect_left(self.times_s, at_s)  # of two equal times the first is before a jump
        jump = first < len(self.times_s) and self.times_s[first] == at_s
        found = np.floor((self.ends[first] if jump else self.reached(at_s)) + ROUNDING).astype(np.int64)
        for part, count in enumerate(found):
            if count and self.arrived_s(part, int(count) - 1) >= at_s:
                found[part] -= 1
        return found

    def knot(self, at_s: float) -> None:
        """Fix the current ends, so that the rate can change from here on."""
        if self.away_s is not None:
            self.held = self.held + self.rates * (at_s - self.away_s)
            self.away_s = at_s
        if at_s > self.times_s[-1]:
            self.ends.append(self.reached(at_s))
            self.times_s.append(at_s)

    def add(self, at_s: float, counts: Array) -> None:
        self.knot(at_s)
        if self.away_s is not None:
            self.held = self.held + counts
        else:
            self.times_s.append(at_s)
            self.ends.append(self.ends[-1] + counts)

    def leave(self, at_s: float) -> None:
        self.knot(at_s)
        self.away_s = at_s

    def come_back(self, at_s: float) -> None:
        self.knot(at_s)
        self.away_s = None
        held, self.held = self.held, np.zeros_like(self.held)
        self.add(at_s, held)

    def grow(self, at_s: float, partitions: int) -> None:
        self.knot(at_s)
        more = (0, partitions - self.partitions)
        self.ends = [np.pad(ends, more) for ends in self.ends]
        self.rates, self.held = np.pad(self.rates, more), np.pad(self.held, more)
        self.starts = np.pad(self.starts, more)


class Topics:
    """The `Broker` port: the topics of one broker and what consumer groups have committed.

    `clock` says what now is, where no time is given.
    """

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self._clock = clock
        self.turn: Any = nullcontext()
        self._topics: dict[str, Topic] = {}
        self._groups: dict[str, dict[str, Whole]] = {}
        """Group -> topic -> offset per partition; -1 where nothing is committed."""
        self.away = False

    def __contains__(self, name: str) -> bool:
        return name in self._topics

    def __getitem__(self, name: str) -> Topic:
        if name not in self._topics:
            raise Misconfigured(f"topic {name}", "is not there: create it, or correct the name")
        return self._topics[name]

    # ------------------------------------------------------------- as a broker

    def topics(self) -> dict[str, int]:
        with self.turn:
            self._answer()
            return {name: topic.partitions for name, topic in self._topics.items()}

    def create(
        self, topic: str, *, partitions: int, kept_s: float | None = None, at_s: float | None = None
    ) -> None:
        """Records need no room here, and are kept for ever."""
        with self.turn:
            self._answer()
            if kept_s is not None:
                number("kept_s", kept_s, above=0.0)
            name = topic
            wanted = whole("partitions", partitions)
            if not name or len(name) > 249 or name in (".", "..") or not set(name) <= LEGAL:
                raise Misconfigured("topic", f"'{name}' is no name for a topic")
            if name not in self._topics:
                self._topics[name] = Topic(wanted, at_s=self._clock() if at_s is None else at_s)
            elif self._topics[name].partitions != wanted:
                raise Unsafe(
                    f"the topic {name} is there with {self._topics[name].partitions} partitions, "
                    f"not {wanted}: use it as it is, or choose another name",
                )

    def delete(self, topic: str) -> None:
        with self.turn:
            self._answer()
            self._topics.pop(topic, None)
            for kept in self._groups.values():
                kept.pop(topic, None)

    def starts(self, topics: Sequence[str]) -> Offsets:
        with self.turn:
            self._answer()
            return {(name, p): int(at) for name in topics for p, at in enumerate(self[name].starts)}

    def ends(self, topics: Sequence[str], *, at_s: float | None = None) -> Offsets:
        with self.turn:
            self._answer()
            now_s = self._clock() if at_s is None else at_s
            return {(name, p): int(end) for name in topics for p, end in enumerate(self[name].end(now_s))}

    def offsets_at(self, topic: str, at_s: float) -> Offsets:
        with self.turn:
            self._answer()
            found, since = self[topic], number("at_s", at_s)
            offsets = np.clip(found.before(since), found.starts, found.end(self._clock()))
            return {(topic, p): int(offset) for p, offset in enumerate(offsets)}

    def committed(self, group: str, topics: Sequence[str]) -> Offsets:
        with self.turn:
            names = topics
            self._answer()
            for name in names:
                self[name]
            kept = self._groups.get(group, {})
            return {
                (name, p): int(offset)
                for name in names
                if name in kept
                for p, offset in enumerate(kept[name])
                if offset >= 0
            }

    def commit(self, group: str, offsets: Offsets) -> None:
        with self.turn:
            self._answer()
            if not group:
                raise Misconfigured("group", "'' is no name for a consumer group")
            kept = {name: self._kept(group, name) for name, _ in offsets}
            for (name, part), offset in offsets.items():
                whole(f"offsets[{(name, part)}]", offset, at_least=0)
                if not 0 <= part < self[name].partitions:
                    raise Misconfigured("topic", f"{name} has no partition {part}")
                kept[name][part] = offset
            self._groups.setdefault(group, {}).update(kept)

    def commit_all(self, group: str, offsets: Mapping[str, Whole]) -> None:
        """Commit of whole topics, without checks."""
        self._groups.setdefault(group, {}).update(offsets)

    def _kept(self, group: str, name: str) -> Whole:
        size = self[name].partitions
        found = self._groups.get(group, {}).get(name, np.full(size, -1))
        return np.pad(found, (0, size - found.size), constant_values=-1)

    def _answer(self) -> None:
        if self.away:
            raise BrokerSilent("brokers.bootstrap: the simulated broker does not answer")

    # --------------------------------------------------- what happens to it

    def produce(self, name: str, counts: Mapping[int, int], *, at_s: float) -> None:
        """Add records at once: partition -> number."""
        topic = self[name]
        more = np.zeros(topic.partitions)
        for part, count in counts.items():
            if not 0 <= part < topic.partitions:
                raise Misuse("counts", f"{name} has no partition {part}")
            more[part] = whole("counts", count, at_least=0)
        topic.add(at_s, more)

    def flow(self, name: str, rate_rps: float, *, at_s: float, shares: Sequence[float] | None = None) -> None:
        """Set the arrival rate from now on, evenly or in these shares (0: an idle partition)."""
        topic = self[name]
        weights = numbers("shares", [1.0] * topic.partitions if shares is None else shares, at_least=0.0)
        if weights.shape != (topic.partitions,) or weights.sum() <= 0.0:
            raise Misuse("shares", f"needs {topic.partitions} shares, not all of them zero")
        topic.knot(at_s)
        topic.rates = number("rate_rps", rate_rps, at_least=0.0) * weights / weights.sum()

    def expire(self, name: str, before: Mapping[int, int], *, at_s: float) -> None:
        """Delete by retention: partition -> first offset that is left."""
        topic = self[name]
        ends = topic.end(at_s)
        for part, offset in before.items():
            topic.starts[part] = max(topic.starts[part], min(offset, ends[part]))

    def grow(self, name: str, partitions: int, *, at_s: float) -> None:
        """Add partitions; they are idle until a rate is set again."""
        if partitions < self[name].partitions:
            raise Misuse("partitions", "a topic does not lose partitions")
        self[name].grow(at_s, partitions)

    def leave(self, *, at_s: float) -> None:
        if not self.away:
            self.away = True
            for topic in self._topics.values():
                topic.leave(at_s)

    def come_back(self, *, at_s: float) -> None:
        """Start the broker; producers send what they held."""
        if self.away:
            self.away = False
            for topic in self._topics.values():
                topic.come_back(at_s)
