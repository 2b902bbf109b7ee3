"""The page of ``run --live``: what it shows in a real browser while a plan runs, and what the server refuses."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request

import pytest
from small_networks import branched, overlapping_plan
from typer.testing import CliRunner

from loadmaster import api
from loadmaster.cli import app
from loadmaster.errors import InputError
from loadmaster.problem import Concurrent, Pipeline, Serial
from loadmaster.report import LivePage, live_html

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return branched(tmp_path_factory.mktemp("live") / "net.xml")


@pytest.fixture
def running(network):
    """Starts a plan that runs until the test ends; gives its address, and what ends it."""
    stop, threads = threading.Event(), []

    def start(model):
        urls, there, found = [], threading.Event(), []

        def started(url):
            urls.append(url)
            there.set()

        def go():
            try:
                found.append(api.watch(network, overlapping_plan(network, model), started=started, stop=stop))
            finally:
                there.set()

        threads.append(threading.Thread(target=go))
        threads[-1].start()
        assert there.wait(120)

        def end():
            stop.set()
            threads[-1].join(60)
            return found[0]

        return urls[0], end

    yield start
    stop.set()
    for thread in threads:
        thread.join(60)


def asked(url, path="state.json"):
    with urllib.request.urlopen(url + path, timeout=30) as answer:
        return answer.read()


@pytest.mark.parametrize("model", [Concurrent(), Pipeline()], ids=["concurrent", "pipeline"])
def test_the_state_says_what_runs_and_ends_with_it(running, model):
    url, end = running(model)
    state = json.loads(asked(url))
    for _ in range(600):
        state = json.loads(asked(url))
        if state["requests"] > 20 and state["rate"] and all(d["measured"] for d in state["devices"]):
            break
        threading.Event().wait(0.1)
    assert [device["name"] for device in state["devices"]] == ["A", "B"]
    assert state["predicted"] == 1.0
    for device in state["devices"]:
        assert 0 <= device["busy"] <= 1
        assert device["ratio"] == pytest.approx(device["measured"] / device["predicted"])
        assert 0 <= device["queue"] <= 3 * device["submodels"]
    last = end()
    assert last["ended"]
    assert last["requests"] >= state["requests"]
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(url.rstrip("/").rsplit(":", 1)[1])), 5)


def test_the_page_follows_a_run_in_a_browser(running):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: install Debian's package 'chromium'")
    url, end = running(Pipeline())
    errors = []
    with sync_api.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        tab = chromium.new_page(viewport={"width": 900, "height": 800})
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        tab.goto(url)
        expect, patience = sync_api.expect, 60_000
        expect(tab.locator("#requests")).to_have_text(re.compile(r"\d\d"), timeout=patience)
        first = tab.inner_text("#requests")
        expect(tab.locator("#requests")).not_to_have_text(first, timeout=patience)
        rows = tab.locator("#devices tbody tr td:first-child")
        expect(rows).to_have_text(["A", "B"], timeout=patience)
        expect(tab.locator("#plot path")).to_have_count(1, timeout=patience)
        expect(tab.locator("#rate")).to_contain_text("/s", timeout=patience)
        expect(tab.locator("#each-predicted")).to_contain_text("predicted 1.00 s")
        expect(tab.locator("#subtitle")).to_contain_text("outputs match the unplaced model")
        expect(tab.locator("#events-box")).to_be_hidden()
        assert not errors
        end()
        expect(tab.locator("#status")).to_contain_text("ended", timeout=patience)
        chromium.close()


def test_changes_of_the_plan_are_told_in_a_browser_as_text(tmp_path):
    """Names from a plan are shown, not run."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: install Debian's package 'chromium'")
    evil = "<img src=x onerror=document.title='broken'>"
    device = {"name": evil, "node": evil, "colour": "#0072B2", "submodels": 2, "queue": 3, "busy": 0.5}
    state = {
        "status": "running", "ended": False, "requests": 12345, "seconds": 5.0, "rate": 10.0, "each": 0.1,
        "predicted": 0.05, "predicted_rate": 20.0, "history": [[0.0, 1.0], [1.0, 2.0]],
        "devices": [{**device, "measured": 0.02, "predicted": 0.01, "ratio": 2.0, "slow": True}],
        "events": [{"at": 2.0, "text": f"node {evil} died"}],
    }  # fmt: skip
    with LivePage() as page, sync_api.sync_playwright() as driver:
        page.start(live_html(evil, evil), lambda: state)
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        tab = chromium.new_page()
        tab.goto(page.url)
        tab.wait_for_selector("#events li")
        assert tab.inner_text("#events li") == f"after 2.00 s: node {evil} died"
        cells = tab.locator("#devices tbody td").all_inner_texts()
        assert cells == [evil, evil, "2", "■■■ 3", "50 %", "20.00 ms", "10.00 ms", "2.00x"]
        assert "bad" in tab.locator("#devices tbody td").last.get_attribute("class")
        assert tab.inner_text("#requests") == "12,345"
        assert "2.00x" in tab.inner_text("#each-predicted")
        assert evil in tab.title()
        chromium.close()


def test_only_this_machine_is_answered_and_only_what_there_is():
    with LivePage() as page:
        page.start("<p>hello</p>", lambda: {"a": 1})
        assert json.loads(asked(page.url)) == {"a": 1}
        assert page._server.server_address[0] == "127.0.0.1"

        def status(path, host):
            connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=30)
            connection.request("GET", path, headers={"Host": host})
            return connection.getresponse().status

        assert status("/", f"localhost:{page.port}") == 200
        assert status("/", "evil.example") == 403
        assert status("/../etc/passwd", f"127.0.0.1:{page.port}") == 404


def test_a_port_that_cannot_be_used_is_one_sentence(network, tmp_path):
    plan = tmp_path / "plan.json"
    overlapping_plan(network, Pipeline()).save(plan)
    with LivePage() as page:
        with pytest.raises(InputError, match=f"port {page.port} cannot be used"):
            LivePage(page.port)
        command = ["run", str(network), "--plan", str(plan), "--live", "--port"]
        for port in (str(page.port), "70000", "-1"):
            result = CliRunner().invoke(app, [*command, port])
            assert result.exit_code == 2
            assert len(result.output.strip().splitlines()) == 1
            assert "port" in result.output


def test_plans_that_do_not_overlap_are_not_shown(network):
    with pytest.raises(Exception, match="concurrent and pipeline plans are shown live"):
        api.watch(network, overlapping_plan(network, Serial()))


def test_ctrl_c_ends_the_command_with_what_it_saw(network, tmp_path):
    plan = tmp_path / "plan.json"
    overlapping_plan(network, Pipeline()).save(plan)
    command = [
        sys.executable,
        "-m",
        "loadmaster.cli",
        "run",
        str(network),
        "--plan",
        str(plan),
        "--live",
        "--json",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        url = re.search(r"http://127\.0\.0\.1:\d+/", line)[0]
        while json.loads(asked(url))["requests"] < 5:
            threading.Event().wait(0.1)
        os.kill(process.pid, signal.SIGINT)
        out, error = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, error
    assert json.loads(out)["requests"] >= 5
    assert "Traceback" not in error
