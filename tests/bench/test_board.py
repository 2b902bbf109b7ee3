"""The board: what the scores are, and that the page works in a real browser, by keyboard and on a phone."""

import json
import math
import shutil
from pathlib import Path

import pytest

from loadmaster import bench
from loadmaster.bench._board import CAP, read_rows, scores

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def row(instance, method, seed, cost, **more):
    return {
        "instance": instance, "method": method, "seconds": 10.0, "seed": seed, "cost": cost, "optimal": False,
        "history": [[0.5, 3, 2 * cost], [2.0, 9, cost]] if cost else [], "seconds_taken": 3.0, "machine": "m",
        "versions": "v", "when": "2026-11-17T00:00:00", **more,
    }  # fmt: skip


def test_a_score_is_the_geometric_mean_of_ratios_over_what_a_method_supports():
    best = {"a": 1.0, "b": 2.0, "c": 1.0, "d": 0.0}
    rows = [
        row("a", "m", 0, 1.0, optimal=True), row("a", "m", 1, 1.2),
        row("b", "m", 0, 3.0), row("b", "m", 1, 3.0),
        row("c", "m", 0, None, unsupported=True),
    ]  # fmt: skip
    found = scores(rows, best)
    assert found["score"] == pytest.approx(math.sqrt(math.sqrt(1.0 * 1.2) * 1.5))
    assert found["low"] == pytest.approx(math.sqrt(1.5))
    assert found["high"] == pytest.approx(math.sqrt(1.2 * 1.5))
    assert (found["instances"], found["seeds"], found["proved"], found["reached"]) == (2, 2, 0.25, 0.25)
    assert scores([row("c", "m", 0, None)], best)["score"] == pytest.approx(CAP)
    assert scores([row("a", "m", 0, 1e9)], best)["score"] == pytest.approx(CAP)
    assert scores([row("d", "m", 0, 0.0)], best)["score"] == 1.0
    assert scores([row("c", "m", 0, None, unsupported=True)], best) is None


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("board")
    names = [entry.name for entry in bench.suites()["tiny"].instances][:4]
    rows = []
    for name in names:
        best = bench.read_known(name).cost
        rows += [row(name, "auto", seed, best * (1 + 0.01 * seed)) for seed in range(3)]
        rows += [row(name, "</script>evil", 0, 1.5 * best), row(name, "heft", 0, None, why="no <b>luck</b>")]
    key = ("instance", "method", "seconds", "seed")
    lines = [
        json.dumps(
            {
                "key": {k: r[k] for k in key},
                "when": r["when"],
                "row": {k: v for k, v in r.items() if k != "when"},
            }
        )
        for r in rows
    ]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    return bench.write_board([folder / "rows.jsonl"], folder / "board.html", reports={names[0]})


def test_the_page_needs_nothing_from_outside(page):
    text = page.read_text()
    assert "http" not in text.replace("http://www.w3.org", "")
    assert text.count("</script>") == 2


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: install Debian's package 'chromium'")
    with sync_api.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_board_is_sorted_and_explored_by_keyboard(browser, page, width):
    errors = []
    context = browser.new_context(viewport={"width": width, "height": 800}, offline=True)
    tab = context.new_page()
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(page.as_uri())
    first = "#score-table tbody tr:first-child td:first-child"
    assert tab.inner_text(first) == "auto"
    assert tab.locator("#score-table tbody tr").count() == 3
    assert "1.0100 (1.0000–1.0200)" in tab.inner_text("#score-table tbody tr:first-child")
    head = tab.locator("#score-table th button").nth(1)
    head.focus()
    tab.keyboard.press("Enter")
    assert tab.inner_text(first) == "heft"
    assert tab.locator("#score-table th").nth(1).get_attribute("aria-sort") == "descending"
    assert tab.evaluate("document.activeElement.textContent") == "score"
    assert tab.locator("#profile path").count() == 3
    tab.locator("#instance-table td button", has_text="tiny-serial-0").focus()
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#detail-title")
    name = tab.inner_text("#detail-title")
    assert name == "tiny-serial-0"
    assert bench.instances()[name].hash in tab.inner_text("#detail")
    tab.locator("#detail td button").first.focus()
    tab.keyboard.press("Enter")
    assert f"loadmaster bench run --instances {name}" in tab.inner_text("#command")
    assert tab.locator("#detail a").get_attribute("href") == f"reports/{name}.html"
    # nothing but the tables, which scroll by themselves, is wider than the screen
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.locator("#suite").select_option("gdp")
    assert "0 of 19 instances" in tab.inner_text("#missing")
    context.close()
    assert not errors


def test_the_board_of_the_documentation_is_made_of_the_rows_beside_it():
    folder = Path(__file__).parents[2] / "docs" / "benchmark"
    rows = read_rows(sorted(folder.glob("*.jsonl")))
    assert (folder / "board.html").read_text(encoding="utf-8") == bench.board_page(bench.board_data(rows)), (
        "make it again: loadmaster bench board docs/benchmark/*.jsonl -o docs/benchmark/board.html"
    )
