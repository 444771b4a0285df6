"""The pictures of Dagster's pages in the documents, taken in a real browser of a Headroom that runs.

    make demo DEPLOYMENT=simulated KEEP=1          # in another terminal
    headroom open --json                           # in the demo's folder: the address with its token
    python docs/images/make.py --pages ADDRESS [--job NAME] [--only NAME]

Needs Playwright for Python, which Headroom itself does not, and a Chromium (`--chromium`, default
/usr/bin/chromium). Everything is clicked as a person would; what does not come in time is an error. Take them
as soon as the story of the demo has ended: later `timeline` shows mostly the quiet time after it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FLAGS = (
    "--headless=new --disable-gpu "
    "--disable-background-networking --disable-component-update --disable-sync --no-first-run --no-sandbox"
)
MOST_BYTES = 300_000
LEAST_BYTES_PER_PIXEL = 0.03  # measured: these pictures have 0.08 to 0.16, an empty page 0.004
PATIENCE_MS = 120_000
SETTLE_MS = 6_000  # what is drawn by itself after the last answer
NAMES = ("graph", "capacity", "timeline")
STAGES = ("record", "profile", "model", "decide", "apply")
Box = dict[str, float]


class Tour:
    """One visit. Each stop returns what of the page is worth a picture; all of it, if nothing."""

    def __init__(self, page: Any, *, pages: str, job: str) -> None:
        self.page, self.dagster, self.job = page, f"{pages.partition('/?')[0]}/dagster", job
        page.goto(pages)  # its token becomes a cookie

    def go(self, address: str, sees: str) -> None:
        self.page.goto(address, wait_until="domcontentloaded")
        self.page.get_by_text(sees, exact=True).first.wait_for()
        self.settle()

    def settle(self) -> None:
        self.page.wait_for_timeout(SETTLE_MS)

    def size(self, width: int, height: int) -> None:
        self.page.set_viewport_size({"width": width, "height": height})

    def graph(self) -> Box:
        """The five stages, opened."""
        self.size(1400, 860)  # wider than the graph, so that the buttons at the right stand beside it
        self.go(f"{self.dagster}/asset-groups", "record")
        for name in reversed(STAGES):
            self.page.locator("svg foreignObject").get_by_text(name, exact=True).first.click(force=True)
            self.page.wait_for_timeout(1500)
        self.page.get_by_text("Hide navigation").click()
        box = self.page.locator("input[placeholder='Jump to…']").first
        box.locator("xpath=following::button[1]").click()
        self.settle()
        self.page.mouse.dblclick(1000, 700)  # on nothing: the whole of it
        self.settle()
        return self.around("svg foreignObject", margin=1)

    def timeline(self) -> Box:
        """Load, lag and executors of six hours."""
        return self.shown("decision", "timeline")

    def capacity(self) -> Box:
        """The picture of a model."""
        return self.shown("capacity_model", "picture")

    def shown(self, asset: str, name: str) -> Box:
        self.size(1400, 900)
        self.go(f"{self.dagster}/assets/{asset}?view=partitions&partition={self.job}", "Metadata")
        row = self.page.locator("tr", has=self.page.get_by_text(name, exact=True)).first
        row.get_by_text("[Show Markdown]").click()
        self.page.locator("img[src^='data:image/png']").first.wait_for()
        self.settle()
        return self.around("[role=dialog], .bp5-dialog, .bp4-dialog", margin=0)

    def around(self, what: str, *, margin: float) -> Box:
        """The smallest piece of the page that has all of these."""
        boxes = [one for each in self.page.locator(what).all() if (one := each.bounding_box())]
        left, top = min(box["x"] for box in boxes) - margin, min(box["y"] for box in boxes) - margin
        right = max(box["x"] + box["width"] for box in boxes) + margin
        low = max(box["y"] + box["height"] for box in boxes) + margin
        seen = self.page.viewport_size
        left, top = max(0.0, left), max(0.0, top)
        right, low = min(right, seen["width"]), min(low, seen["height"])
        return {"x": left, "y": top, "width": right - left, "height": low - top}


def main(arguments: list[str]) -> int:
    """Take them all, or those of `--only`."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pages", required=True)
    parser.add_argument("--job", default="enrichment")
    parser.add_argument("--only", action="append", default=[], choices=NAMES)
    parser.add_argument("--into", type=Path, default=HERE)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    given = parser.parse_args(arguments)
    failed = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=given.chromium, args=FLAGS.split())
        for name in NAMES:
            if given.only and name not in given.only:
                continue
            page = browser.new_page(viewport={"width": 1400, "height": 800})
            page.set_default_timeout(PATIENCE_MS)
            tour = Tour(page, pages=given.pages, job=given.job)
            visit: Callable[[], Box | None] = getattr(tour, name)
            file, piece = given.into / f"{name}.png", None
            try:
                piece = visit()
            except Exception as error:  # noqa: BLE001 - the other pictures are still wanted
                failed += 1
                file = given.into / f"failed-{name}.png"
                sys.stderr.write(f"{name}: {str(error).splitlines()[0]}\n")
            page.screenshot(path=str(file), clip=piece)
            size, seen = file.stat().st_size, piece or {**page.viewport_size}
            if size < LEAST_BYTES_PER_PIXEL * seen["width"] * seen["height"]:
                failed += 1
                sys.stderr.write(f"{name}: the picture is empty\n")
            sys.stdout.write(f"{file.name}: {size / 1000:.0f} kB\n")
            sys.stdout.flush()
            failed += size > MOST_BYTES
            page.close()
        browser.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
