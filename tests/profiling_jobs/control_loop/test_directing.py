"""Is a size that control does not expect ours all the same?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from models import control
from models.control import Directives, Settings
from models.ports import NO_MARK, Status
from models.promise import Promise
from models.quantities import Unknown
from profiling_jobs.control_loop.applying import marked
from profiling_jobs.control_loop.memory import Outcome

pytestmark = pytest.mark.fast

SETTINGS = Settings(promise=Promise(180.0), max_scale_out=12, mode="apply")
SET_SIX = Outcome(7, 4, 6, "done", begun_at_s=90.0, at_s=100.0)


@pytest.mark.parametrize(
    ("scale_out", "ours", "resumed_at_s", "carries", "found"),
    [
        (4, None, 0.0, True, NO_MARK),  # what control expects needs no mark
        (6, None, 0.0, True, False),
        (6, None, 0.0, NO_MARK, NO_MARK),
        (6, SET_SIX, 0.0, NO_MARK, False),
        (6, SET_SIX, 0.0, False, NO_MARK),  # set by us once, by others since
        (6, SET_SIX, 100.0, NO_MARK, NO_MARK),  # what was before a resume says nothing of after it
        (6, SET_SIX, 100.0, True, False),
        (6, replace(SET_SIX, state="refused"), 0.0, NO_MARK, NO_MARK),
        (5, SET_SIX, 0.0, NO_MARK, NO_MARK),
        (Unknown("not read"), SET_SIX, 0.0, True, NO_MARK),
    ],
)
def test_a_size_is_ours_where_we_have_set_it_or_it_carries_our_mark(
    scale_out: Any, ours: Outcome | None, resumed_at_s: float, carries: Any, found: Any
) -> None:
    said = marked(
        Directives(resumed_at_s=resumed_at_s),
        scale_out=scale_out,
        state=replace(control.start(SETTINGS), applied=4),
        ours=ours,
        status=Status("running", scale_out, 4, "run-1", ours=carries),
    )
    assert said.foreign_edit == found
