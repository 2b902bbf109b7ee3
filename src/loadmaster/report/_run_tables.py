"""What the commands that run models print."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from loadmaster.plan import finite
from loadmaster.report._tables import _facts, _table
from loadmaster.units import bytes_text, percent, seconds_text

if TYPE_CHECKING:
    from loadmaster.runtime.openvino import ModelProfile

__all__ = [
    "change_text",
    "devices_table",
    "live_tables",
    "optimized_tables",
    "profile_document",
    "profile_tables",
    "run_tables",
    "torch_run_tables",
    "zoo_table",
]


def zoo_table(documents: Sequence[Mapping[str, Any]]) -> RenderableType:
    """What ``zoo`` prints."""
    table = _table(
        "model",
        "ops",
        "parameters",
        "multiply-adds",
        "exportable",
        right=("ops", "parameters", "multiply-adds"),
    )
    for document in documents:
        table.add_row(
            Text(document["name"]),
            f"{document['ops']:,}",
            f"{document['parameters']:,}" if document["parameters"] else "–",
            f"{document['macs']:,}" if document["macs"] else "–",
            "yes" if document["runs"] else "",
        )
    return table


def devices_table(document: Mapping[str, Any]) -> RenderableType:
    """What ``devices`` prints."""
    table = _table("device", "description", "precisions", "cores", right=("cores",))
    for entry in document["available"]:
        cores = "–" if entry["cores"] is None else str(entry["cores"])
        table.add_row(Text(entry["name"]), Text(entry["model"]), ", ".join(entry["precisions"]), cores)
    for entry in document["virtual"]:
        core = "any" if entry["core"] is None else str(entry["core"])
        what = f"{entry['plugin']}, core {core}, {entry['threads']} thread{'s' * (entry['threads'] != 1)}"
        if entry.get("node"):
            what = f"{entry['node']}: {what}"
        if entry.get("speed", 1.0) != 1.0:
            what += f", {entry['speed']:g}x speed"
        table.add_row(Text(entry["name"]), Text(what), entry["precision"], "")
    if "nodes" not in document:
        return table
    nodes = _table("node", "host", "cores", "memory", right=("cores", "memory"))
    for entry in document["nodes"]:
        nodes.add_row(
            Text(entry["name"]), Text(entry["host"]), str(entry["cores"]), bytes_text(entry["memory"])
        )
    return Group(table, Text(), nodes)


def profile_document(profile: ModelProfile) -> dict[str, Any]:
    """What ``profile --json`` prints."""
    graph = profile.network.graph
    return {
        "model": graph.name,
        "hash": graph.digest,
        "ops": graph.n,
        "cached": profile.cached,
        "age": max(0.0, time.time() - profile.age),
        "devices": [
            {
                "name": spec.name,
                "what": spec.text,
                "seconds": found.wall,
                "counted": found.counted,
                "by_position": found.by_position,
                "unmapped": found.unmapped,
                "fused_groups": len(found.fused),
                "unsupported": list(found.unsupported),
                "made": found.made,
                "ops": {op: finite(spent) for op, spent in found.seconds.items()},
            }
            for spec, found in ((spec, profile.profiles[spec.name]) for spec in profile.devices)
        ],
        "groups": [[graph.names[v] for v in group] for group in profile.groups],
        "links": [
            {
                "between": list(kinds),
                "latency": fit.latency,
                "bandwidth": 1 / fit.rate if fit.rate else None,
                "residuals": list(fit.residuals),
                "cuts": list(fit.cuts),
                "median_residual": fit.median_residual,
                "made": fit.made,
            }
            for kinds, fit in profile.links.items()
        ],
    }


def profile_tables(document: Mapping[str, Any]) -> RenderableType:
    """What ``profile`` prints."""
    age = seconds_text(document["age"])
    facts = {
        "model": f"{document['model']}, {document['ops']} ops",
        "measured": f"{age} ago, from the cache" if document["cached"] else "now",
    }
    table = _table(
        "device", "whole model", "sum of ops", "matched by order", "unmatched", "fused groups",
        right=("whole model", "sum of ops", "matched by order", "unmatched", "fused groups"),
    )  # fmt: skip
    for entry in document["devices"]:
        table.add_row(
            Text(entry["name"]),
            seconds_text(entry["seconds"]),
            seconds_text(entry["counted"]),
            percent(entry["by_position"]),
            percent(entry["unmapped"]),
            str(entry["fused_groups"]),
        )
    links = _table(
        "link", "latency", "bandwidth", "samples", "median error", "max error",
        right=("latency", "bandwidth", "samples", "median error", "max error"),
    )  # fmt: skip
    for entry in document["links"]:
        bandwidth = "–" if entry["bandwidth"] is None else f"{entry['bandwidth'] / 1e9:.2f} GB/s"
        links.add_row(
            Text(" – ".join(entry["between"])),
            seconds_text(entry["latency"]),
            bandwidth,
            str(len(entry["residuals"])),
            percent(entry["median_residual"]),
            percent(max((abs(x) for x in entry["residuals"]), default=0.0)),
        )
    return Group(_facts(facts), table, *([links] if document["links"] else []))


def _engine(document: Mapping[str, Any]) -> str:
    """The engine and its version."""
    names = {"openvino": "OpenVINO", "onnxruntime": "ONNX Runtime"}
    return next(
        (f"{name} {document[key].split('-')[0]}" for key, name in names.items() if key in document), ""
    )


def run_tables(document: Mapping[str, Any]) -> RenderableType:
    """What ``run`` prints."""
    measured = document["measured"]
    verified = document["lines"][0]["verified"]
    facts = {
        "outputs": f"match {_verified(verified)}",
        "predicted": f"{seconds_text(document['predicted'])}, {percent(abs(document['error']))} "
        + ("below" if document["error"] < 0 else "above")
        + " the measured time",
        "clock": f"{measured['clock']}, {_cores(document['cores'])}, {_engine(document)}",
    }
    table = _table(
        "candidate", "median", "95 % from", "to", "vs plan", "pieces", "runs", "dropped",
        right=("median", "95 % from", "to", "vs plan", "pieces", "runs", "dropped"),
    )  # fmt: skip
    for line in document["lines"]:
        found = line["measured"]
        if found is None:
            table.add_row(Text(line["name"]), Text(line["why"]))
            continue
        apart = found["low"] > measured["high"] or found["high"] < measured["low"]
        table.add_row(
            Text(line["name"]),
            seconds_text(found["median"]),
            seconds_text(found["low"]),
            seconds_text(found["high"]),
            f"{found['median'] / measured['median']:.2f}x" if apart else "within noise",
            str(found["submodels"]),
            str(found["kept"]),
            str(found["dropped"]),
        )
    facts.update(_latency(document["lines"][0]))
    notes = [
        Text(f"  {change_text(change)}; what is shown was measured after that")
        for change in document.get("replanned", ())
    ]
    notes += [Text(f"  {f['level']}: {f['text']} [{f['rule']}]") for f in document["findings"][:8]]
    return Group(_facts(facts), table, *notes)


def live_tables(document: Mapping[str, Any]) -> RenderableType:
    """What ``run --live`` prints when it has ended."""
    rate, predicted = document["rate"], document["predicted_rate"]
    facts = {
        "requests": f"{document['requests']:,} in {seconds_text(document['seconds'])}",
        "throughput": ("–" if rate is None else f"{rate:,.2f} requests/s")
        + " in the last 5 s"
        + ("" if predicted is None else f", predicted {predicted:,.2f}"),
    }
    table = _table(
        "device", "node", "pieces", "measured", "predicted", "measured / predicted",
        right=("pieces", "measured", "predicted", "measured / predicted"),
    )  # fmt: skip
    for device in document["devices"]:
        table.add_row(
            Text(device["name"]),
            Text(device["node"] or "here"),
            str(device["submodels"]),
            seconds_text(device["measured"]),
            seconds_text(device["predicted"]),
            "–" if device["ratio"] is None else f"{device['ratio']:.2f}x",
        )
    events = [Text(f"  after {seconds_text(e['at'])}: {e['text']}") for e in document["events"]]
    return Group(_facts(facts), table, *events)


def change_text(change: Mapping[str, Any]) -> str:
    """Which nodes died or joined, and how long placing anew took."""
    nodes = " and ".join(f"node {name!r}" for name in change["nodes"])
    what = [f"{nodes} died"] if nodes else []
    what += [f"{', '.join(change['joined'])} joined"] if change["joined"] else []
    return (
        f"{' and '.join(what) + ': ' if what else ''}placed anew on {', '.join(change['devices'])} in "
        f"{seconds_text(change['seconds'])}, predicted {seconds_text(change['cost'])}"
    )


def _cores(cores: Sequence[int]) -> str:
    return f"core{'s' * (len(cores) != 1)} {', '.join(map(str, cores))}"


def _verified(verified: Mapping[str, Any]) -> str:
    """Against what outputs were compared, how far off they are, and what was allowed."""
    off = f"off by {verified['error']['relative']:.1e} of the largest value"
    moved = verified["control"]
    control = "another input changes " + ("their shapes" if moved is None else f"them by {moved:.1e}")
    if verified.get("stated"):
        return (
            f"the unplaced model at f32 within {verified['stated']}, on {verified['inputs']} inputs: {off}, "
            f"cosine {verified['cosine']:.6f}, top-1 {percent(verified['top1'])}; {control}"
        )
    return f"the unplaced model at {verified['precision']}: {off} ({verified['tolerance']:.1e} allowed); {control}"


def _latency(line: Mapping[str, Any]) -> dict[str, str]:
    """Of single requests in a stream, where the line has it."""
    found = line.get("latency")
    if found is None:
        return {}
    return {
        "latency": f"{seconds_text(found['median'])} per request (median), {seconds_text(found['p95'])} (95th "
        f"percentile), {found['requests']} requests"
    }


def optimized_tables(document: Mapping[str, Any]) -> RenderableType:
    """What ``optimize`` prints."""
    per = {
        "pipeline": "per request in a stream",
        "serial": "of one request, one submodel after another",
    }.get(document["model"], "of one request")
    best = next((line for line in document["lines"] if line["name"] == "best plan"), None)
    alone = document["alone"]
    if not alone:
        result = "no device can run the whole model alone, so the plan was compared with nothing"
    elif document["pays"]:
        assert best is not None
        result = (
            f"the plan is {best['speedup']:.2f}x as fast as {alone} alone (95 % intervals do not overlap)"
        )
    elif best is None and document["left_out"]:
        result = f"the plan is {alone} alone: no other placement was measured ({document['left_out'][0]})"
    elif best is None:
        result = f"no other placement was run, since none was predicted to beat one device: the plan is {alone} alone"
    elif document["predicted"] is not None:
        result = f"the plan is the best that the pins allow; {alone} alone, which they forbid, is as fast or faster"
    else:
        result = (
            f"no placement that was run is measurably faster than device {alone} alone, so the plan uses {alone} "
            "alone"
        )
    facts = {"result": result, "plan": document["plan"], "time": per}
    if best is not None:
        verified = best["verified"]
        facts["outputs"] = f"match {_verified(verified)}"
        if document["predicted"] is not None:
            apart = document["predicted"] / best["measured"]["median"] - 1
            facts["predicted"] = f"{seconds_text(document['predicted'])}, {percent(abs(apart))} " + (
                "below the measured time" if apart < 0 else "above the measured time"
            )
        facts.update(_latency(best))
    fit = document["fit"]
    if fit["submodels"]:
        dearest = max(fit["readers"], key=fit["readers"].get, default=None)
        reading = (
            f" and up to {seconds_text(fit['readers'][dearest] * 1e6)} to read it ({dearest})"
            if dearest
            else ""
        )
        facts["costs"] = (
            f"op times x{fit['slowdown']:.2f} while other devices are busy, "
            f"{seconds_text(fit['piece'])} per submodel, {seconds_text(fit['rate'] * 1e6)} per MB transferred{reading} "
            f"(fitted to {fit['submodels']} submodels, "
            f"median error {percent(fit['median_residual'])})"
        )
    phases = ", ".join(f"{name} {seconds_text(spent)}" for name, spent in document["spent"].items())
    facts["spent"] = f"{seconds_text(document['seconds'])} of {seconds_text(document['budget'])}: {phases}"
    for text in document["left_out"]:
        facts["left out"] = f"{facts['left out']}; {text}" if "left out" in facts else text
    measured = next(line["measured"] for line in document["lines"] if line["measured"])
    facts["clock"] = f"{measured['clock']}, {_cores(document['cores'])}"
    table = _table(
        "candidate", "median", "95 % interval", "speed-up", "pieces", "runs",
        right=("median", "95 % interval", "speed-up", "pieces", "runs"),
    )  # fmt: skip
    for line in document["lines"]:
        found = line["measured"]
        if found is None:
            table.add_row(Text(line["name"]), Text(line["why"]))
            continue
        apart = found["low"] > measured["high"] or found["high"] < measured["low"]
        noise = "" if apart or found is measured else " (noise)"
        speed = "-" if line["speedup"] is None else f"{line['speedup']:.2f}x{noise}"
        table.add_row(
            Text(line["name"]),
            seconds_text(found["median"]),
            f"{seconds_text(found['low'])} – {seconds_text(found['high'])}",
            speed,
            str(found["submodels"]),
            str(found["kept"]),
        )
    return Group(_facts(facts), table)


def torch_run_tables(document: Mapping[str, Any]) -> RenderableType:
    """What ``run --runtime torch`` prints."""
    verified = document["verified"]
    worst = max(verified["errors"].values(), default=0.0)
    what = "training" if document["training"] else "inference"
    facts = _facts(
        {
            "model": f"{document['model']}, {what}",
            "engine": f"torch {document['torch']}, {document['schedule']}, {document['backend']}",
            "microbatches": str(document["microbatches"]),
            "equal": f"{verified['tensors']} tensors within {worst:.1e} of the unsplit model "
            f"({verified['tolerance']:g} is allowed; compared with {verified['reference']})",
            "control": f"with {verified['control']['changed']} changed by 1 % they differ by "
            f"{verified['control']['error']:.1e}",
            "step": f"{seconds_text(document['median'])} (from {seconds_text(document['low'])} to "
            f"{seconds_text(document['high'])}, {len(document['steps'])} steps)",
            "predicted": f"{seconds_text(document['predicted'])} ({document['prediction']})",
        }
    )
    table = _table("rank", "device", "ops", "CPU time of a step", "peak memory", right=("rank", "ops"))
    for stage in document["stages"]:
        rank = stage["rank"]
        table.add_row(
            str(rank),
            Text(stage["device"]),
            f"{stage['ops']:,}",
            seconds_text(document["cpu"][rank]),
            bytes_text(document["memory"][rank]),
        )
    return Group(facts, table)
