"""The pictures of the README, taken in a real browser of a Headroom that runs.

    make demo DEPLOYMENT=simulated KEEP=1          # in another terminal; it prints the two addresses
    python docs/images/make.py --dagster ADDRESS --mlflow ADDRESS [--job NAME] [--only NAME]

Needs Playwright for Python, which Headroom itself does not, and a Chromium (`--chromium`, default
/usr/bin/chromium). Everything is clicked as a person would; what does not come in time is an error.
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
NAMES = ("graph", "points", "capacity", "decision", "tick", "materialise", "model")
STAGES = ("record", "profile", "model", "decide", "apply")


class Tour:
    """One visit."""

    def __init__(self, page: Any, *, dagster: str, mlflow: str, job: str) -> None:
        self.page, self.dagster, self.mlflow, self.job = page, dagster.rstrip("/"), mlflow.rstrip("/"), job

    def go(self, address: str, sees: str) -> None:
        self.page.goto(address, wait_until="domcontentloaded")
        self.page.get_by_text(sees, exact=True).first.wait_for()
        self.settle()

    def settle(self) -> None:
        self.page.wait_for_timeout(SETTLE_MS)

    def graph(self) -> None:
        """The five stages."""
        self.page.set_viewport_size({"width": 1400, "height": 1000})
        self.go(f"{self.dagster}/asset-groups", "record")
        for name in reversed(STAGES):
            self.page.locator("svg foreignObject").get_by_text(name, exact=True).first.click(force=True)
            self.page.wait_for_timeout(1500)
        self.page.get_by_text("Hide navigation").click()
        box = self.page.locator("input[placeholder='Jump to…']").first
        box.locator("xpath=following::button[1]").click()
        self.settle()
        self.page.mouse.dblclick(1000, 750)  # on nothing: the whole of it
        self.settle()

    def decision(self) -> None:
        """What was decided, plotted."""
        self.go(f"{self.dagster}/assets/decision?view=overview", "Metadata")
        self.page.get_by_role("button", name="Plots").click()
        self.page.get_by_role("button", name="Events").click()
        self.page.get_by_text("arrival_rps").first.wait_for()
        self.page.get_by_text("arrival_rps").first.scroll_into_view_if_needed()
        self.settle()

    def capacity(self) -> None:
        """The picture of a model."""
        self.go(f"{self.dagster}/assets/capacity_model?view=partitions&partition={self.job}", "Metadata")
        row = self.page.locator("tr", has=self.page.get_by_text("picture", exact=True)).first
        row.get_by_text("[Show Markdown]").click()
        self.page.locator("img[src^='data:image/png']").first.wait_for()
        self.settle()

    def points(self) -> None:
        """What a search has measured."""
        self.go(f"{self.dagster}/assets/profiling_points?view=partitions", "Materialized")
        self.page.get_by_text(re.compile(rf"^{self.job}/e\d+/r\d+$")).first.click()
        self.settle()

    def tick(self) -> None:
        """Why nothing had to change."""
        self.go(f"{self.dagster}/locations/headroom/sensors/optimization_sensor", "Evaluations")
        self.page.get_by_text("View logs").first.wait_for()
        self.page.get_by_text("View logs").first.click()
        self.settle()

    def materialise(self) -> None:
        """A run that is launched from the page, and ends well."""
        self.go(f"{self.dagster}/assets/decision?view=overview", "Metadata")
        self.page.get_by_role("button", name="Materialize…").first.click()
        self.page.get_by_role("button", name="All", exact=True).click()
        self.page.get_by_role("button", name=re.compile("^Launch")).last.click()
        self.page.get_by_text("View", exact=True).first.click()
        self.page.get_by_text("Success", exact=True).first.wait_for()
        self.settle()

    def model(self) -> None:
        """The same model where its versions are kept."""
        self.page.goto(
            f"{self.mlflow}/#/models/{self.job}.capacity/versions/1", wait_until="domcontentloaded"
        )
        self.page.get_by_text("champion").first.wait_for()
        self.settle()


def main(arguments: list[str]) -> int:
    """Take them all, or those of `--only`."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dagster", required=True)
    parser.add_argument("--mlflow", required=True)
    parser.add_argument("--job", default="enrichment")
    parser.add_argument("--only", action="append", default=[])
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
            visit: Callable[[], None] = getattr(tour, name)
            file = given.into / f"{name}.png"
            try:
                visit()
            except Exception as error:  # noqa: BLE001 - the other pictures are still wanted
                failed += 1
                file = given.into / f"failed-{name}.png"
                sys.stderr.write(f"{name}: {str(error).splitlines()[0]}\n")
            page.screenshot(path=str(file))
            size = file.stat().st_size
            sys.stdout.write(f"{file.name}: {size / 1000:.0f} kB\n")
            failed += size > MOST_BYTES
            page.close()
        browser.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
