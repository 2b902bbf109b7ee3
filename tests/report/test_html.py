"""The HTML report: what is in the file, and that it works in a real browser."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from report_pages import unpacked
from strategies import placements, problems
from typer.testing import CliRunner

import loadmaster.report
from loadmaster import api
from loadmaster.cli import app
from loadmaster.graph import GraphBuilder
from loadmaster.hardware import Cluster, Device, accelerators, roofline
from loadmaster.plan import Plan, versions
from loadmaster.problem import (
    MODELS,
    Concurrent,
    Pipeline,
    Placement,
    Point,
    Problem,
    Solution,
    evaluate,
)
from loadmaster.report import html_report
from loadmaster.report._page_data import GROUP_ABOVE
from loadmaster.report._palette import device_colours

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = "</script><script>document.title='broken'</script>%%DATA%%&amp;\"'"


@pytest.fixture(scope="module")
def problem():
    return api.problem("zoo:layered-60", "2acc+1cpu", model="concurrent", pins=["op3=cpu0"])


@pytest.fixture(scope="module")
def page(problem):
    solutions = [api.place(problem, method, evaluations=200) for method in ("single", "heft", "greedy")]
    return html_report(problem, solutions, failures={"sulky": "it found no placement"}, versions=versions())


def test_the_page_needs_nothing_from_outside(page):
    assert not re.search(r'(?:src|href)="(?!#)', page)
    assert "http" not in re.sub(r'<script id="data".*?</script>', "", page, flags=re.S).replace("httpx", "")


def test_the_arrays_say_what_the_evaluation_says(problem, page):
    header, arrays = unpacked(page)
    best = min(
        (api.place(problem, m, evaluations=200) for m in ("single", "heft", "greedy")), key=lambda s: s.cost
    )
    evaluation = api.evaluate(problem, best.placement)
    assert header["cost"] == evaluation.cost
    assert arrays["device"].tolist() == best.placement.device.tolist()
    np.testing.assert_allclose(arrays["end"], evaluation.end, rtol=1e-6)
    np.testing.assert_allclose(arrays["time"].reshape(problem.n, -1), problem.time, rtol=1e-6)
    assert header["critical"][-1][0] == "op"
    here = arrays["move"].reshape(problem.n, -1)[np.arange(problem.n), best.placement.device]
    assert np.abs(here).max() == 0


def test_all_placers_and_failures_are_in_the_table(page):
    for name in ("single", "heft", "greedy", "sulky"):
        assert re.search(rf"<td>(<b>)?{name}", page)
    assert "it found no placement" in page


@given(st.data())
@settings(max_examples=40)
def test_any_placement_with_a_cost_has_a_report(data):
    problem = data.draw(problems())
    placement = data.draw(placements(problem, orders=problem.model.name == "concurrent"))
    evaluation = api.evaluate(problem, placement)
    assume(np.isfinite(evaluation.cost))
    solution = Solution(
        placement, evaluation.cost, 0.0, "nothing", "hand", history=[Point(0.0, 1, evaluation.cost)]
    )
    page = html_report(problem, [solution])
    header, arrays = unpacked(page)
    assert header["cost"] == evaluation.cost
    assert len(arrays["x"]) == problem.n
    assert ("All constraints hold" in page) == evaluation.feasible


@pytest.mark.parametrize("model", MODELS)
def test_every_execution_model_has_a_report(model):
    problem = api.problem("zoo:layered-24", "2acc+1cpu", model=model)
    header, arrays = unpacked(html_report(problem, [api.place(problem, "greedy", evaluations=50)]))
    assert header["model"] == model
    assert ("start" in arrays) == (model != "pipeline")


def test_what_was_measured_is_shown_beside_the_prediction(problem):
    schedule = [{"op": "op7", "start": 0.25, "end": 0.5}, {"op": "stranger", "start": 0, "end": 1}]
    measured = {"median": 0.0123, "low": 0.012, "high": 0.013, "schedule": schedule}
    page = html_report(problem, [api.place(problem, "heft", evaluations=5)], measured=measured, effort=0)
    assert "12.30 ms" in page
    assert "12.00 ms to 13.00 ms" in page
    arrays = unpacked(page)[1]
    assert (arrays["measuredStart"][7], arrays["measuredEnd"][7]) == (0.25, 0.5)
    assert np.isfinite(arrays["measuredStart"]).sum() == 1


def test_names_are_text_whatever_they_contain():
    builder = GraphBuilder(HOSTILE)
    for name in (HOSTILE, "b", "c"):
        builder.op(name, "<b>Conv</b>", flops=1e9)
    builder.tensor(0, bytes=1e6, consumers=[1, 2])
    graph, cluster = builder.build(), accelerators(2)
    problem = Problem.make(graph, cluster, Concurrent(), time=roofline(graph, cluster), pins={0: 2, 1: 0})
    page = html_report(problem, [api.place(problem, "greedy", evaluations=20)])
    assert page.count("<script") == 2
    assert "<b>Conv" not in page
    assert unpacked(page)[0]["names"][0] == HOSTILE


def test_five_thousand_ops_are_below_a_megabyte_and_large_graphs_open_in_groups():
    problem = api.problem("zoo:layered-5000", "2acc+1cpu")
    solution = api.place(problem, "single", evaluations=5)
    assert len(html_report(problem, [solution], effort=50_000_000).encode()) < 1_000_000
    large = api.problem(f"zoo:layered-{GROUP_ABOVE + 1}", "2acc+1cpu")
    header, arrays = unpacked(html_report(large, [api.place(large, "single", evaluations=5)], effort=0))
    assert len(header["groups"]) == arrays["group"].max() + 1
    width, height = header["box"]
    assert (np.abs(arrays["x"] - arrays["groupX"][arrays["group"]]) <= width / 2).all()
    assert (np.abs(arrays["y"] - arrays["groupY"][arrays["group"]]) <= height / 2).all()


def test_the_report_package_knows_no_placer():
    for file in Path(loadmaster.report.__file__).parent.glob("*.py"):
        assert "loadmaster.placers" not in file.read_text(encoding="utf-8"), file


def test_devices_have_colours_of_their_own():
    assert len(set(device_colours(21))) == 21


def test_report_command_shows_the_cheapest_of_plans_and_rejects_strangers(tmp_path, problem):
    paths = []
    for method in ("single", "heft"):
        paths.append(str(tmp_path / f"{method}.json"))
        Plan.from_solution(problem, api.place(problem, method, evaluations=50)).save(paths[-1])
    out = tmp_path / "report.html"
    result = CliRunner().invoke(app, ["report", *paths, "-o", str(out)])
    assert result.exit_code == 0, result.output
    assert "<td><b>heft" in out.read_text()
    other = api.problem("zoo:layered-24")
    Plan.from_solution(other, api.place(other, "single", evaluations=5)).save(tmp_path / "other.json")
    result = CliRunner().invoke(app, ["report", paths[0], str(tmp_path / "other.json"), "-o", str(out)])
    assert result.exit_code == 2
    assert "different problem" in result.output


def test_place_and_compare_write_reports(tmp_path):
    for command in (["place", "--method", "greedy"], ["compare", "--methods", "single,greedy"]):
        out = tmp_path / f"{command[0]}.html"
        arguments = [command[0], "zoo:layered-24", *command[1:], "--evaluations", "20", "--report", str(out)]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        assert out.read_text().startswith("<!doctype html>")


# -- in a browser --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: install Debian's package 'chromium'")
    with sync_api.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a page, offline; errors of its script fail the test."""
    errors = []
    context = browser.new_context(viewport={"width": 1400, "height": 900}, offline=True)

    def open_page(text: str):
        file = Path(tmp_path / "report.html")
        file.write_text(text, encoding="utf-8")
        tab = context.new_page()
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.goto(file.as_uri())
        tab.wait_for_selector("html[data-ready]", timeout=30_000)
        return tab

    yield open_page
    context.close()
    assert not errors


def click_op(tab, v):
    x, y = tab.evaluate(f"loadmaster.onScreen({v})")
    tab.locator("#graph-canvas").click(position={"x": x, "y": y})


def test_a_click_on_an_op_shows_its_cost_everywhere(opened, problem, page):
    tab = opened(page)
    click_op(tab, 7)
    panel = tab.locator("#panel")
    assert panel.locator("h3").inner_text() == "op7"
    rows = panel.locator("tbody tr")
    assert rows.count() == problem.devices
    assert [rows.nth(d).locator("td").nth(0).inner_text() for d in range(3)] == list(problem.cluster.names)
    assert rows.locator("text=current").count() == 1
    click_op(tab, 3)
    assert "pinned to cpu0" in panel.locator(".why").inner_text()
    panel.locator("button[data-op]").first.click()
    assert panel.locator("h3").inner_text() != "op3"


def test_search_finds_an_op_by_keyboard_alone(opened, page):
    tab = opened(page)
    tab.keyboard.press("/")
    tab.keyboard.type("OP4")
    assert tab.locator("#matches li").count() == 11
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    assert tab.locator("#panel h3").inner_text() == "op40"
    tab.keyboard.press("Escape")
    tab.keyboard.press("Escape")
    assert tab.locator("#panel h3").inner_text() == "Overview"


def test_the_graph_zooms_pans_and_fits(opened, page):
    tab = opened(page)
    first = tab.evaluate("({...loadmaster.view})")
    box = tab.locator("#graph-canvas").bounding_box()
    tab.mouse.move(box["x"] + 5, box["y"] + 5)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 95, box["y"] + 65, steps=4)
    tab.mouse.up()
    panned = tab.evaluate("({...loadmaster.view})")
    assert first["x"] - panned["x"] == pytest.approx(90 / first["k"], rel=0.01)
    tab.locator("#graph-canvas").focus()
    tab.mouse.wheel(0, -300)
    tab.wait_for_function(f"loadmaster.view.k > {first['k']} * 1.2")
    tab.keyboard.press("0")
    assert tab.evaluate("({...loadmaster.view})") == first


def test_the_timeline_names_what_is_under_the_pointer_and_selects_it(opened, page):
    tab = opened(page)
    canvas = tab.locator("#timeline-canvas")
    canvas.scroll_into_view_if_needed()
    width = canvas.bounding_box()["width"]
    v, device, middle = tab.evaluate(
        "(() => { const {data, meta} = loadmaster; let v = 0;"
        " const length = (u) => data.end[u] - data.start[u];"
        " for (let u = 0; u < data.end.length; u++) if (length(u) > length(v)) v = u;"
        " return [v, data.device[v], (data.start[v] + data.end[v]) / 2 / meta.cost]; })()"
    )
    at = {"x": 168 + middle * (width - 168 - 14), "y": 28 + 36 * device + 15}
    canvas.hover(position=at)
    assert f"op{v} " in tab.locator("#tip").inner_text()
    canvas.click(position=at)
    assert tab.locator("#panel h3").inner_text() == f"op{v}"


def test_the_baselines_of_a_run_are_those_of_the_terminal(problem):
    """The same rows, speed-ups and reasons as ``optimize`` prints."""

    def line(name, median, **more):
        interval = {"low": 0.9 * median, "high": 1.1 * median}
        return {"name": name, "why": "", "median": median, **interval, "submodels": 1, "kept": 30, **more}

    lines = [
        line("A alone", 0.1),
        {"name": "OpenVINO, 2 streams", "why": "the budget has no room for it"},
        line("B alone", 0.105),
        line("best plan", 0.05, submodels=7, kept=12),
    ]
    page = html_report(
        problem, [api.place(problem, "heft", evaluations=5)], measured={"lines": lines}, effort=0
    )
    section = page[page.index('<section id="measured">') :]
    section = section[: section.index("</section>")]
    for text in (
        "A alone",
        "1.00x<",
        "the budget has no room for it",
        "0.95x (noise)",
        "2.00x<",
        ">7<",
        ">12<",
    ):
        assert text in section


def test_the_timeline_has_a_lane_for_what_was_measured(opened, problem):
    schedule = [{"op": "op7", "device": "cpu0", "start": 0.0, "end": 0.01}]
    solution = api.place(problem, "heft", evaluations=5)
    height = "document.getElementById('timeline-canvas').clientHeight"
    plain = opened(html_report(problem, [solution], effort=0)).evaluate(height)
    tab = opened(html_report(problem, [solution], measured={"schedule": schedule}, effort=0))
    assert tab.evaluate(height) == plain + problem.devices * (16 + 6)


def test_a_step_has_a_row_per_rank_with_every_microbatch(opened):
    builder = GraphBuilder("two layers")
    for name in ("a", "b", "a/backward", "b/backward"):
        builder.op(name, backward=name.endswith("backward"))
    builder.tensor(0, bytes=1.0, consumers=[1])
    builder.tensor(1, bytes=1.0, consumers=[3])
    builder.tensor(3, bytes=1.0, consumers=[2])
    problem = Problem.make(
        builder.build(),
        Cluster("ranks", (Device("rank0", "rank"), Device("rank1", "rank"))),
        Pipeline(microbatches=3),
        time=np.array([[1.0, 1.0], [2.0, 2.0], [2.0, 2.0], [3.0, 3.0]]),
        latency=np.full((2, 2), 0.5),
        rate=np.zeros((2, 2)),
        colocation=[(0, 2), (1, 3)],
    )
    placement = Placement(np.array([0, 1, 0, 1], np.int32))
    evaluation = evaluate(problem, placement)
    text = html_report(problem, [Solution(placement, evaluation.cost, 1.0, "nothing", "hand")])
    assert "time of one step" in text
    tab = opened(text)
    assert tab.evaluate("document.getElementById('timeline-canvas').clientHeight") == 44 + 2 * 36 + 2 * 24
    canvas = tab.locator("#timeline-canvas")
    canvas.scroll_into_view_if_needed()
    width = canvas.bounding_box()["width"]
    for action in evaluation.actions:
        middle = (action.start + action.end) / 2 / evaluation.cost
        canvas.hover(position={"x": 168 + middle * (width - 168 - 14), "y": 28 + 36 * action.device + 15})
        which = "backward" if action.backward else "forward"
        said = tab.locator("#tip").inner_text()
        assert said.startswith(f"stage {action.stage} · microbatch {action.microbatch} · {which}")


def test_light_and_dark_can_be_switched(opened, page):
    tab = opened(page)
    before = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.locator("#theme").click()
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_a_group_of_a_large_graph_opens_and_closes(opened):
    problem = api.problem(f"zoo:layered-{GROUP_ABOVE + 1}", "2acc+1cpu")
    tab = opened(html_report(problem, [api.place(problem, "single", evaluations=5)], effort=0))
    assert not tab.evaluate("loadmaster.isOpen(0)")
    x, y = tab.evaluate(
        "(() => { const {data, view} = loadmaster;"
        " return [(data.groupX[0] - view.x) * view.k, (data.groupY[0] - view.y) * view.k]; })()"
    )
    tab.locator("#graph-canvas").click(position={"x": x, "y": y})
    assert tab.evaluate("loadmaster.isOpen(0)")
    tab.locator("#toggle-group").click()
    assert not tab.evaluate("loadmaster.isOpen(0)")


def test_a_graph_without_ops_or_without_time_is_drawn(opened):
    for ops in (0, 1, 2):
        builder = GraphBuilder("nothing")
        for i in range(ops):
            builder.op(f"op{i}")
        graph, cluster = builder.build(), accelerators(1)
        problem = Problem.make(graph, cluster, Concurrent(), time=np.zeros((ops, 2)))
        tab = opened(html_report(problem, [api.place(problem, "single", evaluations=5)]))
        assert tab.locator("#panel h3").inner_text() == "Overview"


def test_hostile_names_stay_text_in_the_browser(opened):
    builder = GraphBuilder(HOSTILE)
    builder.op(HOSTILE, "Conv", flops=1e9)
    graph, cluster = builder.build(), accelerators(1)
    problem = Problem.make(graph, cluster, Concurrent(), time=roofline(graph, cluster))
    tab = opened(html_report(problem, [api.place(problem, "single", evaluations=5)]))
    click_op(tab, 0)
    assert tab.locator("#panel h3").inner_text() == HOSTILE
    assert tab.title() != "broken"
