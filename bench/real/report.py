"""Report of what was measured: figures with their targets, and one table per part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench import Figure

BEGIN, END = "<!-- bench-real -->", "<!-- /bench-real -->"
Row = Sequence[str | float | int]


@dataclass(frozen=True)
class Report:
    """One part: what it asks, its figures, and the rows they come from."""

    asks: str
    figures: Sequence[Figure]
    columns: Sequence[str] = ()
    rows: Sequence[Row] = ()
    notes: Sequence[str] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        return {
            "asks": self.asks,
            "figures": [asdict(one) | {"holds": one.holds} for one in self.figures],
            "columns": list(self.columns),
            "rows": [list(row) for row in self.rows],
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Report:
        figures = [Figure(**{k: v for k, v in one.items() if k != "holds"}) for one in data["figures"]]
        return cls(data["asks"], figures, data["columns"], data["rows"], data["notes"])

    def lines(self) -> list[str]:
        """For the terminal."""
        return [f"{one.name:<74} {said(one.value):>9} {one.unit}{target(one)}" for one in self.figures]

    def markdown(self) -> list[str]:
        """For docs/measurements.md: the figures, then the rows."""
        text = [f"**{self.asks}**", "", "| figure | measured | held to |", "|---|---:|---|"]
        for one in self.figures:
            held = target(one).strip(" ()") or "–"
            text.append(f"| {one.name} | {said(one.value)} {one.unit} | {held} |")
        if self.rows:
            text += ["", row(self.columns), "|" + "---|" * len(self.columns)]
            text += [
                row([said(cell) if isinstance(cell, float) else cell for cell in one]) for one in self.rows
            ]
        return [*text, *(line for note in self.notes for line in ("", note)), ""]


def row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def said(value: float) -> str:
    """Three digits that count; never an exponent."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def target(figure: Figure) -> str:
    bound = figure.at_most if figure.at_most is not None else figure.at_least
    if bound is None:
        return ""
    sign = "≤" if figure.at_most is not None else "≥"
    return f"  ({sign} {bound:g}: {'ok' if figure.holds else 'MISSED'})"


def into(page: str, parts: Sequence[Report], machine: str) -> str:
    """The page with the tables between its two markers."""
    if BEGIN not in page or END not in page:
        raise SystemExit(
            f"docs/measurements.md has no {BEGIN} … {END}: put the two lines where the tables belong"
        )
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    text = "\n".join(line for part in parts for line in part.markdown())
    return f"{before}{BEGIN}\n{machine}\n\n{text}\n{END}{after}"
