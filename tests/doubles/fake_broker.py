"""A broker that a test makes up: it knows the ends of topics, and has no method to write with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from models.errors import Misconfigured, NotReady
from models.ports import Offsets


class FakeBroker:
    """Topics with the ends of their partitions, and what consumer groups have committed."""

    def __init__(self, ends_of: dict[str, list[int]], **groups: Offsets) -> None:
        self.ends_of, self.groups = ends_of, groups
        self.silent = False
        self.questions = 0

    def __enter__(self) -> FakeBroker:
        return self

    def __exit__(self, *error: Any) -> None: ...

    def topics(self) -> dict[str, int]:
        return {topic: len(ends) for topic, ends in self.ends_of.items()}

    def starts(self, topics: Sequence[str]) -> Offsets:
        return dict.fromkeys(self.ends(topics), 0)

    def ends(self, topics: Sequence[str]) -> Offsets:
        self.questions += 1
        if self.silent:
            raise NotReady("the broker does not answer")
        for topic in topics:
            if topic not in self.ends_of:
                raise Misconfigured(f"topic {topic}", "is not there: create it")
        return {(topic, part): end for topic in topics for part, end in enumerate(self.ends_of[topic])}

    def committed(self, group: str, topics: Sequence[str]) -> Offsets:
        return self.groups.get(group, {})
