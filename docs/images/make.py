"""The pictures of the README, taken in a real browser of a Headroom that runs.

    make demo DEPLOYMENT=simulated KEEP=1          # in another terminal; it prints the two addresses
    python docs/images/make.py --dagster ADDRESS --mlflow ADDRESS [--job NAME] [--only NAME]

Needs Playwright for Python, which Headroom itself does not, and a Chromium (`--chromium`, default
/usr/bin/chromium). Everything is clicked as a person would; what does not come in time is an error. Let the
demo run on for some minutes first, so that there is something to plot.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FLAGS = (
    "--disable-background-networking --disable-component-update --disable-sync --no-first-run --no-sandbox"
)
MOST_BYTES = 300_000
PATIENCE_MS = 120_000
SETTLE_MS = 6_000  # what is drawn by itself after the last answer
NAMES = ("graph", "points", "capacity", "decision", "timeline", "tick", "materialise", "model")
STAGES = ("record", "profile", "model", "decide", "apply")
LOOKED_AT = 12  # ticks, of which every second one has nothing to evaluate
AROUND = 14  # pixels around what is cut out
NO_ASSISTANT = "localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true')"
"""MLflow opens it beside the page at the first visit, this time it does not."""
Box = dict[str, float]


class Tour:
    """One visit. Each stop returns what of the page is worth a picture; all of it, if nothing."""

    def __init__(self, page: Any, *, dagster: str, mlflow: str, job: str) -> None:
        self.page, self.dagster, self.mlflow, self.job = page, dagster.rstrip("/"), mlflow.rstrip("/"), job

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

    def decision(self) -> Box:
        """What was decided, plotted."""
        self.size(1400, 1240)
        self.go(f"{self.dagster}/assets/decision?view=overview", "Metadata")
        self.page.get_by_role("button", name="Plots").click()
        self.page.get_by_role("button", name="Events").click()
        self.page.get_by_text("arrival_rps").first.wait_for()
        self.settle()
        return {"x": 240, "y": 0, "width": 812, "height": 1240}

    def timeline(self) -> Box:
        """The same as one picture."""
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

    def points(self) -> Box:
        """What a search has measured."""
        self.size(1400, 720)
        self.go(f"{self.dagster}/assets/profiling_points?view=partitions", "Metadata")
        self.page.locator(f"[title^='{self.job}/e2/']").last.click()
        self.page.get_by_text("throughput_rps").first.wait_for()
        self.settle()
        return {"x": 240, "y": 0, "width": 1160, "height": 700}

    def tick(self) -> Box:
        """Why nothing had to change: of the newest ticks the first that has evaluated the job."""
        self.size(1400, 860)
        self.go(f"{self.dagster}/locations/headroom/sensors/optimization_sensor", "Evaluations")
        self.page.get_by_text("View logs").first.wait_for()
        for number in range(LOOKED_AT):
            self.page.get_by_text("View logs").nth(number).click()
            self.page.get_by_role("button", name="Done").wait_for()
            self.page.wait_for_timeout(2500)
            if self.page.get_by_text(re.compile(rf"^{self.job}: .*executors")).count():
                break
            self.page.get_by_role("button", name="Done").click()
            self.page.wait_for_timeout(800)
        else:
            raise LookupError(f"none of {LOOKED_AT} ticks has evaluated {self.job}")
        self.settle()
        return {**self.around("[role=dialog], .bp5-dialog, .bp4-dialog", margin=0), "height": 150}

    def materialise(self) -> Box:
        """A run that is launched from the page, and ends well."""
        self.size(1400, 800)
        self.go(f"{self.dagster}/assets/decision?view=overview", "Metadata")
        self.page.get_by_role("button", name="Materialize…").first.click()
        self.page.get_by_role("button", name="All", exact=True).click()
        self.page.get_by_role("button", name=re.compile("^Launch")).last.click()
        self.page.get_by_text("View", exact=True).first.click()
        self.page.get_by_text("Success", exact=True).first.wait_for()
        self.page.reload(wait_until="domcontentloaded")  # without the message that it was launched
        self.page.get_by_text("Success", exact=True).first.wait_for()
        self.page.get_by_text("ASSET_MATERIALI").first.wait_for()
        self.settle()
        return {"x": 240, "y": 0, "width": 1160, "height": 800}

    def model(self) -> Box:
        """The same model where its versions are kept."""
        self.size(1100, 1700)
        self.page.add_init_script(NO_ASSISTANT)
        self.page.goto(
            f"{self.mlflow}/#/models/{self.job}.capacity/versions/1", wait_until="domcontentloaded"
        )
        self.page.get_by_text("champion").first.wait_for()
        self.settle()
        low = self.page.get_by_text("Tags", exact=True).first.bounding_box()
        return {"x": 195, "y": 0, "width": 905, "height": min(1700.0, low["y"] - AROUND)}

    def around(self, what: str, *, margin: float = AROUND) -> Box:
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
    parser.add_argument("--dagster", required=True)
    parser.add_argument("--mlflow", required=True)
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
            tour = Tour(page, dagster=given.dagster, mlflow=given.mlflow, job=given.job)
            visit: Callable[[], Box | None] = getattr(tour, name)
            file, piece = given.into / f"{name}.png", None
            try:
                piece = visit()
            except Exception as error:  # noqa: BLE001 - the other pictures are still wanted
                failed += 1
                file = given.into / f"failed-{name}.png"
                sys.stderr.write(f"{name}: {str(error).splitlines()[0]}\n")
            page.screenshot(path=str(file), clip=piece)
            size = file.stat().st_size
            sys.stdout.write(f"{file.name}: {size / 1000:.0f} kB\n")
            sys.stdout.flush()
            failed += size > MOST_BYTES
            page.close()
        browser.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
