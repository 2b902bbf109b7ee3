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
from pathlib import Path

from loadmaster import api
from loadmaster.report import html_report

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
]


def main() -> None:
    """Print one line per size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ops", type=int, nargs="+", default=[300, 5000, 50000])
    sizes = parser.parse_args().ops
    pages = {}
    for ops in [60, *sizes]:  # the first compiles the kernels
        problem = api.problem(f"zoo:layered-{ops}", "2acc+1cpu")
        solution = api.place(problem, "heft")
        began = time.process_time()
        text = html_report(problem, [solution])
        pages[ops] = text, time.process_time() - began
    print("| ops | kB | seconds to make | seconds to draw |\n|---|---|---|---|")
    for ops in sizes:
        text, seconds = pages[ops]
        print(f"| {ops:,} | {len(text.encode()) / 1000:,.0f} | {seconds:.1f} | {_drawn(text)} |")


def _drawn(text: str) -> str:
    """The median of three, or a dash where there is no browser."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return "–"
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
    return f"{sorted(found)[1]:.2f}"


if __name__ == "__main__":
    main()
