"""The benchmark: instances keep their hashes, proofs are checked by themselves, wrong submissions are refused."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from commands import error, result, run
from hypothesis import given, settings
from hypothesis import strategies as st

from loadmaster import api, bench
from loadmaster.errors import InputError, UndecidedError, UnsupportedError
from loadmaster.problem import Concurrent, Offload, Pipeline, Placement, Serial, evaluate
from loadmaster.testing import brute_force, drawn_problem

SMALL = [
    "tiny-serial-0",
    "tiny-concurrent-1",
    "tiny-chain-6",
    "hsdag-resnet-50-kernels",
    "memory-resnet-50-serial",
]


@pytest.fixture
def tiny():
    entry = bench.instances()["tiny-serial-11"]
    return entry, entry.problem()


# -- instances -----------------------------------------------------------------------------------------------


def test_there_are_as_many_instances_as_promised_each_with_its_story_and_its_hash():
    entries = bench.instances()
    assert 60 <= len(entries) <= 130
    assert set(bench.suites()) == {"tiny", "hsdag", "gdp", "msr", "scale", "memory"}
    for entry in entries.values():
        assert entry.why
        assert entry.origin
        assert len(entry.hash) == 64, entry.name
        assert entry.ops
    assert len({entry.hash for entry in entries.values()}) == len(entries)
    assert max(entry.ops for entry in bench.suites()["scale"].instances) == 1_000_000


@pytest.mark.parametrize("name", SMALL)
def test_an_exported_instance_read_again_has_the_same_hash_and_the_same_costs(name, tmp_path):
    entry = bench.instances()[name]
    problem = entry.problem()
    assert bench.content_hash(problem) == entry.hash
    file = tmp_path / "problem.json"
    assert run("bench", "export", name, "-o", file).exit_code == 0
    again = api.problem(file)
    assert bench.content_hash(again) == entry.hash
    placement = api.place(problem, "single", evaluations=50).placement
    assert evaluate(again, placement).cost == evaluate(problem, placement).cost


def test_one_changed_number_changes_the_hash(tiny):
    from dataclasses import replace

    entry, problem = tiny
    time = problem.time.copy()
    at = tuple(np.argwhere(np.isfinite(time))[0])
    time[at] = np.nextafter(time[at], math.inf)
    assert bench.content_hash(replace(problem, time=time)) != entry.hash
    assert bench.content_hash(problem.with_model(Concurrent())) != entry.hash


def test_published_workloads_have_their_hashes_and_their_published_optima(workloads):
    published = json.loads((workloads / "reference.json").read_text())["throughput"]
    checked = 0
    for entry in bench.suites()["msr"].instances:
        name = entry.source.removeprefix("workload:")
        if entry.ops > 300 or name not in published:
            continue
        assert bench.content_hash(entry.problem(workloads)) == entry.hash
        known = bench.read_known(entry.name)
        if known is not None and entry.model == "pipeline:chain":
            assert known.cost <= published[name]["contiguous_optimum"] / 1e3 * (1 + 1e-9)
            checked += 1
    assert checked or not any("-chain" in file.name for file in bench.FOLDER.glob("msr-*"))


# -- best known values ---------------------------------------------------------------------------------------


def test_a_sample_of_what_is_kept_is_right():
    names = [e.name for e in bench.suites()["tiny"].instances if "serial" in e.name or "chain" in e.name]
    names += ["hsdag-resnet-50-serial", "hsdag-resnet-50-kernels", "hsdag-bert-base-kernels"]
    checks = bench.verify([bench.instances()[name] for name in names])
    assert [check for check in checks if check.wrong] == []
    assert all("placement" in check.looked_at for check in checks)
    assert sum(any(part.startswith("certificate") for part in check.looked_at) for check in checks) >= 6


def test_every_tiny_instance_is_proved():
    for entry in bench.suites()["tiny"].instances:
        assert bench.read_known(entry.name).proof_checked, entry.name


def test_damage_is_found(tmp_path):
    name = "tiny-serial-11"
    known = json.loads((bench.FOLDER / f"{name}.json").read_text())
    for change in ({"cost": known["cost"] * 0.999}, {"bound": known["cost"] * 1.01}, {"hash": "0" * 64},
                   {"checked": known["cost"] * 1.1, "bound": known["cost"]}):  # fmt: skip
        (tmp_path / f"{name}.json").write_text(json.dumps(known | change))
        (check,) = bench.verify([bench.instances()[name]], folder=tmp_path)
        assert check.wrong, change


# -- proofs --------------------------------------------------------------------------------------------------


@given(number=st.integers(0, 400), seed=st.integers(0, 100))
@settings(max_examples=25)
def test_whatever_the_prices_no_placement_is_below_their_bound(number, seed):
    problem = drawn_problem(number, ops=(5, 7), devices=(2, 3), placements=(20, 1000))
    rng = np.random.default_rng(seed)
    carries = isinstance(problem.model, Serial) or (
        isinstance(problem.model, Pipeline) and problem.model.comm == "sum"
    )
    from loadmaster.bench._proofs import readers_of

    weights = rng.random(problem.devices)
    if isinstance(problem.model, Offload):
        weights = np.where(problem.pool, 0.0, weights)
        if not weights.any():
            return
    peak = isinstance(problem.model, Concurrent) and problem.model.memory == "peak"
    memory = np.where(np.isfinite(problem.capacity), rng.random(problem.devices), 0.0) * (0 if peak else 1)
    tensors = rng.random(len(readers_of(problem)) * problem.devices) * rng.choice([0.0, 0.3, 2.0]) * carries
    best = brute_force(problem)[1]
    assert bench.price_bound(problem, weights=weights, memory=memory, tensors=tensors if carries else ()) <= (
        Fraction(best) * (1 + Fraction(1, 10**9)) + Fraction(1, 10**9)
    )
    if isinstance(problem.model, Concurrent | Offload):
        assert float(bench.path_bound(problem)) <= bench.tried_all(problem) * (1 + 1e-9)


@pytest.mark.parametrize("number", [0, 4, 5, 6, 8])
def test_the_prices_that_are_found_are_valid_and_say_something(number):
    problem = drawn_problem(number, ops=(5, 7), devices=(2, 3), placements=(20, 1000))
    from loadmaster.bench._pricing import _prices

    value = bench.price_bound(problem, **_prices(problem, 10.0))
    best = brute_force(problem)[1]
    assert 0.3 * best <= float(value) <= best * (1 + 1e-9)


def test_trying_all_includes_orders_and_calls():
    for number in (1, 2, 10):
        problem = drawn_problem(number, ops=(5, 5), devices=(2, 3), placements=(20, 1000))
        assert bench.tried_all(problem) <= brute_force(problem)[1]


# -- submissions ---------------------------------------------------------------------------------------------


def written(tmp_path, document, **change):
    file = tmp_path / "submission.json"
    file.write_text(json.dumps(document | change))
    return file


def test_wrong_submissions_are_refused_with_the_reason_and_change_nothing(tiny, tmp_path):
    entry, problem = tiny
    best, cost = brute_force(problem)
    worst = Placement(
        np.where(
            problem.pin >= 0, problem.pin, np.argmax(np.where(problem.allowed, problem.time, -1), axis=1)
        )
    )
    good = bench.submission(entry, best, cost, found_by="a test")
    folder = tmp_path / "known"

    def refused(document, **change):
        with pytest.raises(InputError) as refusal:
            bench.submit(written(tmp_path, document, **change), folder=folder)
        return str(refusal.value)

    assert "its hash 000000" in refused(good, hash="0" * 64)
    assert "not the" in refused(good, cost=cost * 0.99)
    assert "device 77" in refused(good, placement={"device": [77] * problem.n})
    assert "must have 7 entries" in refused(good, placement={"device": [0]})
    assert "no instance" in refused(good, instance="tiny-nothing")
    assert "above a known cost" in refused(good, bound={"value": cost * 1.1, "by": "magic"})
    false = {"value": cost * 0.999, "by": "magic", "certificate": {"kind": "path"}}
    assert "proves nothing under the serial model" in refused(good, bound=false)
    assert not folder.exists()
    bench.submit(
        written(tmp_path, bench.submission(entry, worst, evaluate(problem, worst).cost, found_by="t")),
        folder=folder,
    )
    assert bench.submit(written(tmp_path, good), folder=folder)["kept"] == ["cost"]
    proof = {"value": cost, "by": "trying all", "certificate": {"kind": "enumeration"}}
    verdict = bench.submit(written(tmp_path, good, bound=proof), folder=folder)
    assert verdict["kept"] == ["certificate", "bound"]
    assert bench.submit(written(tmp_path, good), folder=folder)["kept"] == []
    assert bench.read_known(entry.name, folder).proof_checked


def test_a_placement_that_breaks_a_rule_is_refused(tmp_path):
    entry = bench.instances()["memory-resnet-50-serial"]
    problem = entry.problem()
    gpu = Placement(np.where(problem.pin >= 0, problem.pin, problem.devices - 1))
    document = bench.submission(entry, gpu, evaluate(problem, gpu).cost, found_by="a test")
    message = error("bench", "submit", written(tmp_path, document), "--known", tmp_path)
    assert "not feasible" in message
    assert "capacity" in message


def test_certificates_are_found_written_and_submitted(tmp_path):
    name, folder = "memory-resnet-50-serial", tmp_path / "known"
    entry = bench.instances()[name]
    problem = entry.problem()
    found = api.place(problem, "local-search", evaluations=300)
    file = written(tmp_path, bench.submission(entry, found.placement, found.cost, found_by="a test"))
    bench.submit(file, folder=folder)
    words = ("bench", "certify", name, "--known", folder, "-o", tmp_path / "out")
    assert "1 certificates" in run(*words).stdout
    proof = tmp_path / "out" / f"{name}.certificate.json"
    assert run("bench", "submit", proof, "--known", folder).exit_code == 0
    known = bench.read_known(name, folder)
    assert known.certificate["kind"] == "prices"
    assert 0.9 * found.cost < known.checked <= found.cost
    assert result(*words) == {}
    assert run("bench", "verify", name, "--known", folder).exit_code == 0
    assert "0 certificates" in run(*words, "--ops", 100).stdout


# -- runs ----------------------------------------------------------------------------------------------------


def test_a_run_resumes_and_its_better_values_become_submissions(tmp_path, monkeypatch):
    rows, found = tmp_path / "rows.jsonl", tmp_path / "found"
    monkeypatch.setattr("loadmaster.bench._running.FOLDER", tmp_path / "none")
    words = (
        "bench",
        "run",
        "--instances",
        "tiny-serial-11",
        "--methods",
        "single,random",
        "--evaluations",
        50,
        "--seeds",
        2,
    )
    words += ("-o", rows, "--placements", found)
    first = result(*words)
    assert (first["cases"], len(first["rows"])) == (3, 3)
    row = first["rows"][-1]
    assert row["machine"]
    assert "numba" in row["versions"]
    assert row["history"][-1][2] == row["cost"]
    before = rows.read_text()
    rows.write_text(before[: len(before) // 2])  # killed while it wrote
    again = result(*words)
    assert [r["cost"] for r in again["rows"]] == [r["cost"] for r in first["rows"]]
    for file in found.iterdir():
        bench.submit(file, folder=tmp_path / "known")
    assert bench.read_known("tiny-serial-11", tmp_path / "known").cost == min(
        r["cost"] for r in first["rows"]
    )


def test_what_a_method_does_not_support_is_a_row_that_says_so(tmp_path):
    case = bench.bench_cases(bench.Plan(names=("tiny-serial-11",), methods=("metis",), evaluations=10))[0]
    assert case.run()["unsupported"]


@pytest.mark.parametrize("name", ["mt-kahypar", "networkx-kl"])
def test_peers_take_part(name):
    pytest.importorskip({"mt-kahypar": "mtkahypar", "networkx-kl": "networkx"}[name])
    entry = bench.instances()["hsdag-resnet-50-pipeline"]
    problem = entry.problem()
    found = bench.find_method(name).run(entry, problem, None, 10, 0)
    assert evaluate(problem, found.placement).cost == found.cost
    assert len(set(found.placement.device.tolist())) > 1


def test_the_published_program_is_compiled_from_its_folder(workloads, tmp_path, monkeypatch):
    """A stand-in that reads the workload and answers with one accelerator: the published source is not here."""
    entry = bench.instances()["msr-layers-bert24-inference-chain"]
    problem = entry.problem(workloads)
    monkeypatch.setenv("LOADMASTER_WORKLOADS", str(workloads))
    method = bench.find_method("published-dp")
    monkeypatch.delenv("LOADMASTER_PUBLISHED_CODE", raising=False)
    with pytest.raises(UnsupportedError, match="LOADMASTER_PUBLISHED_CODE"):
        method.run(entry, problem, 10.0, None, 0)
    ids = [
        node["id"]
        for node in json.loads((workloads / entry.source.removeprefix("workload:")).read_text())["nodes"]
    ]
    split = {"maxLoad": 1.0, "fpgas": [{"load": 1.0, "nodes": ids}], "cpus": []}
    (tmp_path / "throughput-dp").mkdir()
    (tmp_path / "throughput-dp" / "dp.cpp").write_text(
        f'#include <iostream>\nint main() {{ std::cout << R"({json.dumps(split)})"; }}\n'
    )
    monkeypatch.setenv("LOADMASTER_PUBLISHED_CODE", str(tmp_path))
    found = method.run(entry, problem, 30.0, None, 0)
    assert len(set(found.placement.device.tolist())) == 1


def test_programs_that_fail_are_rows_not_errors(tiny):
    entry, problem = tiny
    with pytest.raises(UndecidedError, match="wrote no placement"):
        bench.run_program("false", entry, problem, 1.0, 0)
    with pytest.raises(InputError, match="cannot be run"):
        bench.run_program("no-such-program-anywhere", entry, problem, 1.0, 0)


def test_wrong_words_are_one_sentence():
    assert "there is no suite 'huge'" in error("bench", "run", "--suite", "huge", "--budget", "1s")
    assert "there is no instance 'hsdag-inception'" in error("bench", "show", "hsdag-inception")
    assert "there is no method 'magic'" in error(
        "bench", "run", "--instances", "tiny-serial-11", "--methods", "magic", "--budget", "1s"
    )
    assert "NAME=COMMAND" in error("bench", "run", "--program", "x", "--budget", "1s")
    assert len(result("bench", "list")) == len(bench.instances())
    assert result("bench", "show", "tiny-serial-11")["known"]["gap"] <= 1e-6


# -- schedules -----------------------------------------------------------------------------------------------


def _tampered(problem, found):
    """Schedules with one thing wrong each."""
    from dataclasses import replace

    graph = problem.graph
    early, long, moves = found.start.copy(), found.end.copy(), list(found.transfers)
    reader = int(graph.consumers(moves[-1].tensor)[0])
    early[reader] -= 1e-3 * found.cost
    shifted = replace(found, start=early, end=found.end - (found.start - early))
    yield shifted
    long[reader] += 1e-3 * found.cost
    yield replace(found, end=long)
    yield replace(found, cost=0.999 * found.cost)
    yield replace(found, transfers=tuple(moves[:-1]))
    last = moves[-1]
    hurried = replace(last, start=last.start - 1e-3 * found.cost, end=last.end - 1e-3 * found.cost)
    yield replace(found, transfers=(*moves[:-1], hurried))
    yield replace(found, transfers=(*moves[:-1], replace(last, end=0.5 * (last.start + last.end))))
    yield replace(found, start=None, end=None)


def test_a_schedule_is_checked_op_by_op_and_transfer_by_transfer():
    """What is kept of large graphs under ``concurrent`` stands on this check alone."""
    problem = api.problem("zoo:layered-60?width=6", "2acc+1cpu", "concurrent")
    for seed in range(5):
        device = np.random.default_rng(seed).integers(0, problem.devices, problem.n)
        placement = Placement(device[problem.class_of] if problem.classes < problem.n else device)
        found = evaluate(problem, placement)
        if not found.feasible:
            continue
        assert bench.schedule_error(problem, placement, found) == ""
        assert bench.independent_cost(problem, placement) == (pytest.approx(found.cost), "")
        for wrong in _tampered(problem, found):
            assert bench.schedule_error(problem, placement, wrong) != ""


def test_links_that_carry_two_tensors_at_once_are_found():
    from dataclasses import replace

    problem = api.problem("zoo:layered-60?width=6", "2acc+1cpu", "concurrent")
    device = np.arange(problem.n) % problem.devices
    placement = Placement(device)
    found = evaluate(problem, placement)
    for at, move in enumerate(found.transfers):
        before = [m for m in found.transfers[:at] if (m.source, m.target) == (move.source, move.target)]
        end = found.end[problem.graph.tensor_producer[move.tensor]]
        if before and move.start == max(m.end for m in before) > end + 1e-6 * found.cost:
            hurried = replace(move, start=float(end), end=float(end) + move.end - move.start)
            wrong = replace(found, transfers=(*found.transfers[:at], hurried, *found.transfers[at + 1 :]))
            assert "link" in bench.schedule_error(problem, placement, wrong)
            return
    pytest.fail("no tensor waits for a link here")


@pytest.mark.parametrize("model", ["concurrent", "pipeline", "serial"])
def test_large_placements_cost_the_same_by_another_way(model):
    problem = api.problem("zoo:layered-4200?width=16", "2acc+1cpu", model)
    placement = Placement((np.arange(problem.n) // 50 % problem.devices).astype(np.int64))
    found = evaluate(problem, placement)
    cost, why = bench.independent_cost(problem, placement)
    assert cost == pytest.approx(found.cost, rel=1e-12)
    assert bool(why) == (not found.feasible)
