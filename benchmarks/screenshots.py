"""The pictures in README and documentation: reports made by commands, photographed in headless Chromium."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

IMAGES = Path(__file__).parents[1] / "docs" / "images"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
]
METHODS = "single,greedy,heft,local-search,annealing"
COMPARE = ["compare", "zoo:inception-v3", "--cluster", "hsdag", "--methods", METHODS, "--budget", "3s"]
OP = "mixed_6a/branch0/conv"


def main() -> None:
    """Make a report and take its pictures: light, dark with an op selected, and the timeline."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("there is no Chromium: install Debian's package 'chromium'")
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        report = Path(folder) / "report.html"
        command = [sys.executable, "-m", "loadmaster.cli", *COMPARE, "--report", str(report)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        for scheme in ("light", "dark"):
            tab = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme=scheme)
            tab.goto(report.as_uri())
            tab.wait_for_selector("html[data-ready]")
            if scheme == "light":
                tab.screenshot(path=IMAGES / "report.png")
                tab.locator("#timeline .canvas-box").screenshot(path=IMAGES / "timeline.png")
                continue
            tab.fill("#search", OP)
            tab.press("#search", "Enter")
            tab.locator("#graph .stage").screenshot(path=IMAGES / "op.png")
        browser.close()


if __name__ == "__main__":
    main()
