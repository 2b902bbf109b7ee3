"""The parts of the report that need no script: figures, tables, convergence, memory, constraints, provenance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from loadmaster.problem import Evaluation, Placement, Problem, Solution
from loadmaster.report._cuts import cuts
from loadmaster.report._gap import gap_document, gap_sentences
from loadmaster.report._palette import device_colours
from loadmaster.report._tables import STOPPED
from loadmaster.units import bytes_text, percent, seconds_text

__all__ = [
    "constraints_section",
    "convergence_svg",
    "cuts_table",
    "devices_table",
    "figures",
    "measured_section",
    "placers_table",
    "provenance_table",
    "table",
]

MOST_CUTS = 10
MOST_ROWS = 30


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """A table of cells that are HTML already; columns in ``right`` hold numbers."""

    def cell(tag: str, i: int, content: str) -> str:
        return f'<{tag} class="n">{content}</{tag}>' if i in right else f"<{tag}>{content}</{tag}>"

    top = "".join(cell("th", i, title) for i, title in enumerate(head))
    body = "".join("<tr>" + "".join(cell("td", i, c) for i, c in enumerate(row)) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def swatch(problem: Problem, d: int) -> str:
    """A device's name with its colour."""
    colour = device_colours(problem.devices)[d]
    return f'<span class="swatch" style="background:{colour}"></span>{escape(problem.cluster.names[d])}'


def figures(
    problem: Problem, solution: Solution, evaluation: Evaluation, measured: Mapping[str, Any] | None
) -> str:
    """The few numbers at the top."""
    unit = {
        "pipeline": "time per sample",
        "concurrent": "makespan",
        "serial": "latency",
        "offload": "latency",
    }
    gap = "proven optimal" if solution.optimal else f"can be improved by at most {percent(solution.gap)}"
    share = min(1.0, solution.bound / solution.cost) if solution.cost > 0 else 1.0
    cut = cuts(problem, solution.placement)
    moved = sum(problem.graph.tensor_bytes[c.tensor] * len(c.targets) for c in cut)
    used = len(np.unique(solution.placement.device))
    proof, *search = gap_sentences(gap_document(problem, solution, evaluation)) or [f"by {solution.bound_by}"]
    effort = " ".join([_effort(solution), *search])
    cards = [
        (
            "time of one step" if evaluation.stages else unit[problem.model.name],
            seconds_text(solution.cost),
            f'<span class="meter" role="img" aria-label="{share:.0%} of the cost is proven necessary">'
            f'<i style="width:{100 * share:.1f}%"></i></span>{escape(gap)}',
        ),
        ("proven lower bound", seconds_text(solution.bound), escape(proof)),
        ("devices used", f"{used} of {problem.devices}", escape(_loads(problem, evaluation))),
        ("transferred tensors", f"{len(cut):,}", escape(f"{bytes_text(moved)} in total" if moved else "")),
        ("found by", escape(solution.found_by or solution.method), escape(effort)),
    ]
    found = (measured or {}).get("cost", (measured or {}).get("median"))
    if measured and isinstance(found, int | float):
        cards.insert(1, ("measured", seconds_text(found), escape(_interval(measured))))
    return "".join(
        f'<div class="card"><div class="label">{label}</div><div class="value">{value}</div>'
        f'<div class="note">{note}</div></div>'
        for label, value, note in cards
    )


def _loads(problem: Problem, evaluation: Evaluation) -> str:
    if not (math.isfinite(evaluation.cost) and evaluation.cost > 0):
        return ""
    busy = evaluation.load if problem.model.name == "pipeline" else evaluation.busy
    top = int(np.argmax(busy))
    return (
        f"{problem.cluster.names[top]} is busy {percent(min(1.0, busy[top] / evaluation.cost))} of the time"
    )


def _effort(solution: Solution) -> str:
    return f"{solution.evaluations:,} evaluations in {seconds_text(solution.seconds)}"


def _interval(measured: Mapping[str, Any]) -> str:
    low, high = measured.get("low"), measured.get("high")
    if low is None or high is None:
        return "on this machine"
    return f"{seconds_text(low)} to {seconds_text(high)}"


def measured_section(measured: Mapping[str, Any] | None) -> str:
    """What was measured side by side with the plan, where a runtime wrote it down (``lines``)."""
    lines = (measured or {}).get("lines")
    if not isinstance(lines, Sequence) or isinstance(lines, str):
        return ""
    known = [line for line in lines if isinstance(line, Mapping)]
    first = next((line for line in known if _seconds(line.get("median"))), None)
    rows = []
    for line in known:
        name, median = escape(str(line.get("name", ""))), line.get("median")
        if first is None or not _seconds(median):
            rows.append([name, escape(str(line.get("why", ""))), "", "", "", ""])
            continue
        known_interval = all(_seconds(each.get(end)) for each in (line, first) for end in ("low", "high"))
        between = _interval(line) if known_interval else ""
        speed = f"{first['median'] / median:.2f}x"
        if known_interval and line is not first and _overlap(line, first):
            speed += " (noise)"
        counts = [str(line[key]) if _seconds(line.get(key)) else "" for key in ("submodels", "kept")]
        rows.append([name, seconds_text(median), escape(between), speed, *counts])
    if not rows:
        return ""
    head = ["what ran", "median", "95 % interval", "speed-up", "pieces", "runs"]
    return f'<section id="measured"><h2>Measured</h2>{table(head, rows)}</section>'


def _overlap(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return bool(a["low"] <= b["high"] and b["low"] <= a["high"])


def _seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def placers_table(solutions: Sequence[Solution], failures: Mapping[str, str]) -> str:
    """All placers that took part: cost, bound, gap, seconds."""
    best = min(solution.cost for solution in solutions)
    rows = []
    for solution in sorted(solutions, key=lambda s: s.cost):
        winner = solution.cost == best
        name = escape(solution.method)
        if solution.found_by and solution.found_by != solution.method:
            name += f" ({escape(solution.found_by)})"
        rows.append(
            (
                f"<b>{name}</b>" if winner else name,
                seconds_text(solution.cost),
                "best" if winner else f"+{percent(solution.cost / best - 1) if best else '–'}",
                seconds_text(solution.bound),
                escape(solution.bound_by),
                "optimal" if solution.optimal else percent(solution.gap),
                seconds_text(solution.seconds),
                f"{solution.evaluations:,}",
                escape(STOPPED[solution.stopped]),
            )
        )
    rows += [
        (escape(name), "infeasible", "", "", escape(why), "", "", "", "") for name, why in failures.items()
    ]
    head = ("placer", "cost", "vs best", "bound", "bound by", "gap", "time", "evaluations", "search")
    return table(head, rows, right=(1, 2, 3, 5, 6, 7))


def convergence_svg(solutions: Sequence[Solution]) -> str:
    """Best cost so far over the time of the search (logarithmic), one line per placer, and the strongest bound."""
    drawn = [solution for solution in solutions if solution.history]
    if not drawn:
        return "<p>The plan has no search history.</p>"
    width, height, left, right, top, bottom = 900, 300, 80, 130, 14, 34
    bound = max(solution.bound for solution in solutions)
    last = max(max(s.seconds, s.history[-1].seconds) for s in drawn)
    first = min(max(s.history[0].seconds, 1e-4) for s in drawn)
    last = max(last, 2 * first)
    costs = [point.cost for s in drawn for point in s.history if math.isfinite(point.cost)]
    lowest = bound if bound > 0 else min(costs)
    highest = min(max(costs), 3 * min(costs)) * 1.02
    if highest <= lowest:
        highest = lowest * 1.1 + 1e-12

    def px(seconds: float) -> float:
        share = math.log(max(seconds, first) / first) / math.log(last / first)
        return left + share * (width - left - right)

    def py(cost: float) -> float:
        return top + (highest - min(cost, highest)) / (highest - lowest) * (height - top - bottom)

    parts = [
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="best cost over search time" class="plot">'
    ]
    for tick in _ticks(lowest, highest):
        y = py(tick)
        parts.append(f'<line x1="{left}" x2="{width - right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{seconds_text(tick)}</text>')
    power = math.ceil(math.log10(first))
    while 10.0**power <= last:
        x = px(10.0**power)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{height - bottom}" class="grid"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{height - 12}" text-anchor="middle">{seconds_text(10.0**power)}</text>'
        )
        power += 1
    y = py(bound)
    parts.append(f'<line x1="{left}" x2="{width - right}" y1="{y:.1f}" y2="{y:.1f}" class="bound"/>')
    labels = [(y, "lower bound", "var(--fg)")]
    for i, (solution, colour) in enumerate(zip(drawn, device_colours(len(drawn)), strict=True)):
        path, before = [], None
        for point in solution.history:
            if not math.isfinite(point.cost):
                continue
            x, y = px(point.seconds), py(point.cost)
            path.append(f"M{x:.1f} {y:.1f}" if before is None else f"H{x:.1f}V{y:.1f}")
            before = y
        path.append(f"H{px(max(solution.seconds, solution.history[-1].seconds)):.1f}")
        dash = ("", "7 3", "2 3", "9 3 2 3")[i // 7 % 4] or ("" if i % 2 == 0 else "10 2")
        parts.append(f'<path d="{"".join(path)}" style="stroke:{colour}" stroke-dasharray="{dash}"/>')
        labels.append((py(solution.cost), solution.method, colour))
    for at, text, colour in _apart(labels, 13.0, height - bottom + 6):
        parts.append(
            f'<text x="{width - right + 8}" y="{at + 4:.1f}"><tspan style="fill:{colour}">■ </tspan>'
            f"{escape(text)}</text>"
        )
    return "".join([*parts, "</svg>"])


def _ticks(low: float, high: float) -> list[float]:
    if high - low < 1e-290:  # a fifth of it could be zero
        return [low]
    step = 10.0 ** math.floor(math.log10(high - low))
    step = next(s for s in (step / 5, step / 2, step, 2 * step, 5 * step) if (high - low) / s <= 6)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _apart(labels: list[tuple[float, str, str]], least: float, floor: float) -> list[tuple[float, str, str]]:
    """Labels moved up or down so that none covers another."""
    placed: list[tuple[float, str, str]] = []
    for at, text, colour in sorted(labels):
        placed.append((max(at, placed[-1][0] + least) if placed else at, text, colour))
    over = max(0.0, placed[-1][0] - floor)
    return [(at - over, text, colour) for at, text, colour in placed]


def devices_table(problem: Problem, placement: Placement, evaluation: Evaluation) -> str:
    """Per device: ops, compute, transfers, idle time, memory against capacity."""
    rows = []
    count = np.bincount(placement.device, minlength=problem.devices)
    for d, device in enumerate(problem.cluster.devices):
        idle = evaluation.cost - evaluation.busy[d]
        memory, capacity = float(evaluation.memory[d]), float(problem.capacity[d])
        share = memory / capacity if 0 < capacity < math.inf else None
        bar = "" if share is None else _bar(share)
        peak = "" if evaluation.peak is None else bytes_text(float(evaluation.peak[d]))
        rows.append(
            (
                swatch(problem, d),
                escape(device.model or device.kind),
                f"{count[d]:,}",
                seconds_text(float(evaluation.busy[d])),
                seconds_text(float(evaluation.comm[d])),
                percent(max(0.0, idle) / evaluation.cost) if 0 < evaluation.cost < math.inf else "–",
                bytes_text(memory),
                peak,
                "unlimited" if math.isinf(capacity) else bytes_text(capacity),
                bar,
            )
        )
    head = (
        "device",
        "description",
        "ops",
        "compute",
        "transfers",
        "not computing",
        "memory",
        "peak",
        "capacity",
        "memory used",
    )
    return table(head, rows, right=(2, 3, 4, 5, 6, 7, 8))


def _bar(share: float) -> str:
    kind = ' class="over"' if share > 1 else ""
    return (
        f'<span class="meter wide"><i{kind} style="width:{100 * min(share, 1.0):.1f}%"></i></span>'
        f'<span class="small">{share:.0%}</span>'
    )


def cuts_table(problem: Problem, placement: Placement) -> str:
    """The most expensive transfers."""
    found = cuts(problem, placement)
    rows = []
    for cut in found[:MOST_CUTS]:
        producer = int(problem.graph.tensor_producer[cut.tensor])
        size = float(problem.graph.tensor_bytes[cut.tensor])
        name = escape(problem.graph.names[producer])
        rows.append(
            (
                f'<button class="link" data-op="{producer}">{name}</button>',
                swatch(problem, cut.source),
                ", ".join(swatch(problem, d) for d in cut.targets),
                bytes_text(size) if size else "–",
                seconds_text(cut.seconds),
            )
        )
    if not rows:
        return "<p>No tensor leaves its device.</p>"
    more = f"<p class='small'>and {len(found) - MOST_CUTS:,} more</p>" if len(found) > MOST_CUTS else ""
    return table(("output of", "from", "to", "size", "time"), rows, right=(3, 4)) + more


def constraints_section(problem: Problem, evaluation: Evaluation) -> str:
    """What had to be respected, and whether it is."""
    graph, names = problem.graph, problem.cluster.names
    size = np.bincount(problem.class_of, minlength=max(problem.classes, 1))
    facts = []
    for d, name in enumerate(names):
        pinned = np.flatnonzero(problem.pin == d)
        if len(pinned):
            facts.append(
                (f"pinned to {escape(name)}", _listed([graph.names[v] for v in pinned[:6]], len(pinned)))
            )
        forbidden = np.flatnonzero(problem.forbidden[:, d])
        if len(forbidden):
            facts.append(
                (
                    f"forbidden on {escape(name)}",
                    _listed([graph.names[v] for v in forbidden[:6]], len(forbidden)),
                )
            )
        unsupported = np.flatnonzero(np.isinf(problem.time[:, d]))
        if len(unsupported):
            facts.append(
                (
                    f"not supported by {escape(name)}",
                    _listed([graph.names[v] for v in unsupported[:6]], len(unsupported)),
                )
            )
    together = int((size > 1).sum())
    if together:
        facts.append(("colocated ops", f"{together:,} classes of up to {int(size.max()):,} ops"))
    limited = [
        f"{names[d]} {bytes_text(c)}" for d, c in enumerate(problem.capacity.tolist()) if math.isfinite(c)
    ]
    if limited:
        facts.append(("memory limits", escape(", ".join(limited))))
    settings = ", ".join(f"{key} {value}" for key, value in problem.model.settings.items())
    facts.append(
        ("execution model", escape(f"{problem.model.name} ({settings})" if settings else problem.model.name))
    )
    broken = "".join(f"<li>{escape(text)}</li>" for text in evaluation.why[:MOST_ROWS])
    verdict = (
        '<p class="ok">✓ All constraints hold.</p>'
        if evaluation.feasible
        else f'<p class="bad">✗ Violated constraints:</p><ul>{broken}</ul>'
    )
    return verdict + table(("constraint", ""), facts)


def _listed(names: Sequence[str], total: int) -> str:
    more = f" and {total - len(names):,} more" if total > len(names) else ""
    return ", ".join(f"<code>{escape(name)}</code>" for name in names) + more


def provenance_table(problem: Problem, solution: Solution, versions: Mapping[str, str]) -> str:
    """Where everything comes from."""
    parameters = ", ".join(f"{key}={value}" for key, value in solution.parameters.items())
    facts = {
        "model": f"{problem.graph.name} ({problem.graph.n:,} ops, {problem.graph.tensors:,} tensors)",
        "model hash": problem.graph.digest,
        "cluster": problem.cluster.name,
        "op times": problem.provenance,
        "method": f"{solution.method}, seed {solution.seed}" + (f", {parameters}" if parameters else ""),
        "search": STOPPED[solution.stopped],
        "problem hash": problem.digest,
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }
    return table(
        ("", ""), ((key, f"<span class='wrap'>{escape(value)}</span>") for key, value in facts.items())
    )
