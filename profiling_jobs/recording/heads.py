"""Where did a topic end when its recording was ordered?

Nobody can tell afterwards. Topics are recorded one after the other, and the later ones look back: what
retention has deleted of them since then leaves nothing behind, and would be taken for silence. So it is noted
in the folder of a recording before that begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..driver.orders import read_json, write_json
from .request import Ends

FILE = "heads.json"


def note(folder: Path, heads: Ends) -> None:
    """The topic of this recording ends there, and the recording begins later."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_json(folder / FILE, {"schema": 1, "heads": {str(part): end for part, end in heads.items()}})


def beginning(folder: Path, at: Ends, left: Ends) -> dict[int, int]:
    """Where the recording begins in each partition: at its time, or earlier where of that time some is gone.

    `at` is the first offset of its time among those that are left, `left` the first offset of all.
    """
    noted: Mapping[str, int] = (read_json(folder / FILE) or {}).get("heads", {})
    found = {}
    for part, first in at.items():
        head = int(noted.get(str(part), left[part]))
        found[part] = head if first <= left[part] and head < left[part] else max(first, left[part])
    return found
