"""What does each key of headroom.toml mean? Writes docs/configuration.md from the declarations themselves.

`python -m pipelines.configuration_page` writes the page; a test compares it with what is committed.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from .config import SECTIONS, variable_of
from .declaring import rule_of
from .settings import JobSettings

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"

HEAD = """\
# headroom.toml

One `[job.NAME]` table per streaming job; a name matches `[a-z][a-z0-9-]{0,38}`. A wrong key or value is told
with its line, what is accepted and the nearest name. An environment variable overrides each value;
secrets come from the environment only, under the name that the file gives.

*This page is generated from `pipelines/settings.py`: `make docs`.*
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for name, kind in {**SECTIONS, "job.NAME": JobSettings}.items():
        example = variable_of(f"{name}.{fields(kind)[0].name}")
        parts.append(f"\n## [{name}]\n\n{kind.__doc__}\nEnvironment: `{example}` and so on.\n")
        parts.append("\n| key | accepts | default | |\n|---|---|---|---|\n")
        hints = get_type_hints(kind)
        parts.extend(_row(declared, hints[declared.name]) for declared in fields(kind))
    return "".join(parts)


def _row(declared: Field[Any], hint: Any) -> str:
    cells = (f"`{declared.name}`", _accepts(declared, hint), _default(declared), rule_of(declared).help)
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"


def _accepts(declared: Field[Any], hint: Any) -> str:
    rule = rule_of(declared)
    wanted = next((a for a in get_args(hint) if a is not types.NoneType), hint)
    wanted = hint if get_origin(hint) not in (types.UnionType,) else wanted
    if rule.secret_from:
        return "name of an environment variable"
    if rule.choices:
        options = ", ".join(f"`{c}`" for c in rule.choices)
        return f"list of {options}" if get_origin(wanted) is tuple else options
    if get_origin(wanted) is Literal:
        return ", ".join(f"`{c}`" for c in get_args(wanted))
    if get_origin(wanted) is tuple:
        return f"list of {_NAMES[get_args(wanted)[0]]}s"
    if get_origin(wanted) is Mapping:
        return "table of strings"
    bounds = [
        f"{sign} {bound:g}"
        for sign, bound in (("≥", rule.at_least), (">", rule.above), ("≤", rule.at_most))
        if bound is not None
    ]
    return " ".join([_NAMES[wanted], ", ".join(bounds)]).strip()


_NAMES = {str: "string", bool: "true or false", int: "whole number", float: "number"}


def _default(declared: Field[Any]) -> str:
    if rule_of(declared).required:
        return "**required**"
    value = declared.default if declared.default is not MISSING else {}
    if value is None or value == () or value == {}:
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return ", ".join(f"`{v}`" for v in value)
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
