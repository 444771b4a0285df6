"""What went wrong, in one line, out of pages of Python and Java stack?

Spark wraps what a program has thrown several times over. Of a Python traceback the last line that names an
error says most; of anything else the first line does.
"""

from __future__ import annotations

import re

TRACEBACK = "Traceback (most recent call last):"
NAMED = re.compile(r"[\w.]*(Error|Exception|Warning|Interrupt|Failure|Exit)\b")
LONGEST = 500  # judgement: what fits a table and a notification


def in_short(error: BaseException) -> str:
    """One line."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Java's frames, and its own wrapping of the same error, come after the traceback.
    named = [line for line in lines if NAMED.match(line)] if TRACEBACK in text else []
    kind = type(error).__name__
    if named:
        return named[-1][:LONGEST]
    return f"{kind}: {lines[0]}"[:LONGEST] if lines else kind
