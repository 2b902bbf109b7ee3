"""How large the HTML report is, how long it takes to make, and how soon a browser has drawn it.

    python -m benchmarks.report --ops 5000 50000

Placements are those of HEFT on three devices; times of making are in CPU seconds, compilation excluded. The time to
the first picture is what the page itself measures, from the start of its script, in headless Chromium without a GPU.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path

from loadmaster import api
from loadmaster.report import html_report
from loadmaster.studies import Case, Row, Scope, Study, solved

__all__ = ["STUDY"]

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
]


def options(parser: argparse.ArgumentParser) -> None:
    """Sizes of graphs."""
    parser.add_argument("--ops", type=int, nargs="+", default=[300, 5000, 50000])


def cases(scope: Scope) -> list[Case]:
    """One per size."""
    sizes = [60] if scope.quick else scope["ops"]
    return [Case({"ops": ops}, partial(measure, ops)) for ops in sizes]


def measure(ops: int) -> Row:
    """Size of the page, CPU seconds to make it, seconds to draw it."""
    for size in (60, ops):  # the first compiles the kernels
        problem = api.problem(f"zoo:layered-{size}", "2acc+1cpu")
        solution = solved(problem, "heft")
        began = time.process_time()
        text = html_report(problem, [solution])
        seconds = time.process_time() - began
    return {"kB": len(text.encode()) / 1000, "seconds to make": seconds, "seconds to draw": _drawn(text)}


def _drawn(text: str) -> float | None:
    """The median of three, or None where there is no browser."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page = Path(folder) / "report.html"
        page.write_text(text, encoding="utf-8")
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        found = []
        for _ in range(3):
            tab = browser.new_page(viewport={"width": 1440, "height": 900})
            tab.goto(page.as_uri())
            tab.wait_for_selector("html[data-ready]", timeout=60_000)
            found.append(float(tab.evaluate("loadmaster.drawn")) / 1000)
            tab.close()
        browser.close()
    return sorted(found)[1]


STUDY = Study("report", "The HTML report", cases, options=options, here=True)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
