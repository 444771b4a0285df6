"""Writes docs/configuration.md from the settings models.

`python -m pipelines.settings.page` writes the page; a test compares it with what is committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .loading import SECTIONS, variable_of
from .schema import JOB_GROUPS, LIVE_GROUPS, JobSettings, Section

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"

HEAD = """\
# headroom.toml

One `[job.NAME]` table per streaming job; a name matches `[a-z][a-z0-9-]{0,38}`. `headroom check` reports
every wrong key and value with its line, what is accepted and the nearest name. An environment variable
overrides each value; secrets come from the environment only, under the name that the file gives. What the
words mean is in the [glossary](glossary.md).

*This page is generated from `pipelines/settings/schema.py`: `make docs`.*
"""
COLUMNS = "\n| key | accepts | default | |\n|---|---|---|---|\n"
NAMES = {"string": "string", "boolean": "true or false", "integer": "whole number", "number": "number"}
BOUNDS = (("≥", "minimum"), (">", "exclusiveMinimum"), ("≤", "maximum"))


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for name, kind in SECTIONS.items():
        parts += [_head(name, kind), COLUMNS, _rows(kind)]
    parts.append(_head("job.NAME", JobSettings))
    for group in JOB_GROUPS:
        live = (
            "Takes effect at the next tick." if group in LIVE_GROUPS else "Needs `headroom serve` restarted."
        )
        parts += [f"\n### {(group.__doc__ or '').removesuffix('.')}\n\n{live}\n", COLUMNS, _rows(group)]
    return "".join(parts)


def _head(name: str, kind: type[Section]) -> str:
    example = variable_of(f"{name}.{'mode' if kind is JobSettings else next(iter(kind.model_fields))}")
    return f"\n## [{name}]\n\n{kind.__doc__}\nEnvironment: `{example}` and so on.\n"


def _rows(kind: type[Section]) -> str:
    schema = kind.model_json_schema()
    rows = []
    for key, one in schema["properties"].items():
        default = "**required**" if key in schema.get("required", ()) else _default(one.get("default"))
        cells = (f"`{key}`", _accepts(one), default, " ".join(one["description"].split()))
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return "".join(rows)


def _accepts(schema: Mapping[str, Any]) -> str:
    schema = next(one for one in schema.get("anyOf", [schema]) if one.get("type") != "null")
    if schema.get("secret"):
        return "name of an environment variable"
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    if schema["type"] == "array":
        return f"list: {_accepts(schema['items'])}"
    if schema["type"] == "object":
        return "table of strings"
    bounds = ", ".join(f"{sign} {schema[bound]:g}" for sign, bound in BOUNDS if bound in schema)
    return f"{NAMES[schema['type']]} {bounds}".strip()


def _default(value: Any) -> str:
    if value is None or value == []:
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, list):
        return ", ".join(f"`{one}`" for one in value)
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
