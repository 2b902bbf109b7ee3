"""What the commands that run models print."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from loadmaster.plan import finite
from loadmaster.report._tables import _facts, _table
from loadmaster.units import percent, seconds_text

if TYPE_CHECKING:
    from loadmaster.runtime.openvino import ModelProfile

__all__ = [
    "devices_table",
    "optimized_tables",
    "profile_document",
    "profile_tables",
    "run_tables",
    "zoo_table",
]


def zoo_table(documents: Sequence[Mapping[str, Any]]) -> RenderableType:
    """What ``zoo`` prints."""
    table = _table(
        "model",
        "ops",
        "parameters",
        "multiply-adds",
        "zoo export",
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
    table = _table("device", "what it is", "computes in", "cores", right=("cores",))
    for entry in document["available"]:
        cores = "–" if entry["cores"] is None else str(entry["cores"])
        table.add_row(Text(entry["name"]), Text(entry["model"]), ", ".join(entry["precisions"]), cores)
    for entry in document["virtual"]:
        core = "any" if entry["core"] is None else str(entry["core"])
        what = f"{entry['plugin']}, core {core}, {entry['threads']} thread{'s' * (entry['threads'] != 1)}"
        table.add_row(Text(entry["name"]), Text(what), entry["precision"], "")
    return table


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
        "device", "whole model", "counted", "by position", "not mapped", "fused groups",
        right=("whole model", "counted", "by position", "not mapped", "fused groups"),
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
        "link", "per tensor", "bandwidth", "splits", "median error", "worst",
        right=("per tensor", "bandwidth", "splits", "median error", "worst"),
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


def run_tables(document: Mapping[str, Any]) -> RenderableType:
    """What ``run`` prints."""
    measured = document["measured"]
    verified = document["lines"][0]["verified"]
    facts = {
        "outputs": (
            f"equal to the unplaced model at {verified['precision']}: off by {verified['error']['relative']:.1e} of "
            f"the largest value ({verified['tolerance']:.1e} allowed); another input changes them by "
            f"{verified['control']:.1e}"
        ),
        "predicted": f"{seconds_text(document['predicted'])}, {percent(abs(document['error']))} "
        + ("below" if document["error"] < 0 else "above")
        + " what was measured",
        "clock": f"{measured['clock']}, core {document['core']}, OpenVINO {document['openvino'].split('-')[0]}",
    }
    table = _table(
        "what", "median", "from", "to (95 %)", "vs plan", "submodels", "runs", "dropped",
        right=("median", "from", "to (95 %)", "vs plan", "submodels", "runs", "dropped"),
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
            f"{found['median'] / measured['median']:.2f}x" if apart else "noise",
            str(found["submodels"]),
            str(found["kept"]),
            str(found["dropped"]),
        )
    facts.update(_latency(document["lines"][0]))
    notes = [Text(f"  {f['level']}: {f['text']} [{f['rule']}]") for f in document["findings"][:8]]
    return Group(_facts(facts), table, *notes)


def _latency(line: Mapping[str, Any]) -> dict[str, str]:
    """Of single requests in a stream, where the line has it."""
    found = line.get("latency")
    if found is None:
        return {}
    return {
        "latency": f"a request takes {seconds_text(found['median'])} (median), {seconds_text(found['p95'])} (95th "
        f"percentile), of {found['requests']}"
    }


def optimized_tables(document: Mapping[str, Any]) -> RenderableType:
    """What ``optimize`` prints."""
    per = "per request of a stream" if document["model"] == "pipeline" else "of one request"
    best = next((line for line in document["lines"] if line["name"] == "best plan"), None)
    alone = document["alone"]
    if document["pays"]:
        assert best is not None
        result = f"the plan is {best['speedup']:.2f}x as fast as {alone} alone, beyond the noise"
    elif best is not None:
        result = f"no placement that was run beats device {alone} alone beyond the noise: the plan is {alone} alone"
    else:
        result = f"no other placement was run, for none was predicted to beat one device: the plan is {alone} alone"
    facts = {"result": result, "plan": document["plan"], "time": per}
    if document["left_out"]:
        facts["left out"] = "; ".join(f"{name}: {why}" for name, why in document["left_out"].items())
    if best is not None:
        verified = best["verified"]
        facts["outputs"] = (
            f"of the best plan equal to the unplaced model: off by {verified['error']['relative']:.1e} of the largest "
            f"value ({verified['tolerance']:.1e} allowed); another input changes them by {verified['control']:.1e}"
        )
        if document["predicted"] is not None:
            apart = document["predicted"] / best["measured"]["median"] - 1
            facts["predicted"] = f"{seconds_text(document['predicted'])}, {percent(abs(apart))} " + (
                "below what was measured" if apart < 0 else "above what was measured"
            )
        facts.update(_latency(best))
    fit = document["fit"]
    if fit["submodels"]:
        facts["costs"] = (
            f"ops {fit['slowdown']:.2f}x as long beside busy neighbours, {seconds_text(fit['piece'])} per submodel, "
            f"{seconds_text(fit['rate'] * 1e6)} per MB over a cut (fitted to {fit['submodels']} submodels, "
            f"median error {percent(fit['median_residual'])})"
        )
    measured = document["lines"][0]["measured"]
    facts["clock"] = f"{measured['clock']}, cores {', '.join(map(str, document['cores']))}"
    table = _table(
        "what", "median", "95 % interval", "speed-up", "parts", "runs",
        right=("median", "95 % interval", "speed-up", "parts", "runs"),
    )  # fmt: skip
    for line in document["lines"]:
        found = line["measured"]
        apart = found["low"] > measured["high"] or found["high"] < measured["low"]
        speed = f"{line['speedup']:.2f}x" + ("" if apart or found is measured else " (noise)")
        table.add_row(
            Text(line["name"]),
            seconds_text(found["median"]),
            f"{seconds_text(found['low'])} – {seconds_text(found['high'])}",
            speed,
            str(found["submodels"]),
            str(found["kept"]),
        )
    return Group(_facts(facts), table)
