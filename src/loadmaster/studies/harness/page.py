"""A page of results: Markdown with plots beside it, and where they come from."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loadmaster.errors import InputError
from loadmaster.files import write_atomically
from loadmaster.studies.harness.provenance import machine, versions

__all__ = ["Page", "number", "percent", "ratio", "require_plots"]

Cell = str | float | int | bool | None


def number(value: Any, digits: int = 4) -> str:
    """A number for a table, with so many significant digits; ``-`` for what is not there."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return {True: "yes", False: "no"}.get(value, str(value))
    if isinstance(value, int) or abs(value) >= 10**digits:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def percent(value: float | None, digits: int = 2) -> str:
    """A share as per cent."""
    return "-" if value is None else f"{100 * value:.{digits}f} %"


def ratio(value: float | None) -> str:
    """A ratio of two times."""
    return "-" if value is None else f"{value:.3f}"


class Page:
    """Markdown that is put together part by part, and printed or saved with its plots.

    A page that is only printed is made with ``plots=False``: it has no place for them.
    """

    def __init__(self, title: str, *, plots: bool = True) -> None:
        self._parts = [f"# {title}"]
        self._with_plots = plots
        self._plots: list[tuple[str, bytes]] = []

    def section(self, title: str) -> None:
        """A heading of the second rank."""
        self._parts.append(f"## {title}")

    def text(self, paragraph: str) -> None:
        """A paragraph or a list, as Markdown."""
        self._parts.append(paragraph.strip())

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """A table; texts as they are, numbers with four significant digits."""
        lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        for row in rows:
            lines.append("| " + " | ".join(number(cell).replace("|", "\\|") for cell in row) + " |")
        self._parts.append("\n".join(lines))

    def bars(
        self,
        name: str,
        labels: Sequence[str],
        series: Mapping[str, Sequence[float | None]],
        ylabel: str,
        *,
        line: float | None = None,
        log: bool = False,
    ) -> None:
        """A plot of grouped bars, a group per label and a colour per series; ``line`` marks a value."""
        if not self._with_plots:
            return
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        with rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 9}):
            figure = Figure(figsize=(max(6.0, 0.28 * len(labels) * len(series) + 2), 3.6))
            axes = figure.add_subplot()
            width = 0.8 / max(len(series), 1)
            for at, (title, values) in enumerate(series.items()):
                there = [i for i, value in enumerate(values) if value is not None]
                heights = [value for value in values if value is not None]
                places = [i + (at - (len(series) - 1) / 2) * width for i in there]
                axes.bar(places, heights, width, label=title)
            if line is not None:
                axes.axhline(line, color="black", linewidth=0.8, linestyle=":")
            if log:
                axes.set_yscale("log")
            axes.set_xticks(range(len(labels)), labels, rotation=30, ha="right")
            axes.set_ylabel(ylabel)
            axes.spines[["top", "right"]].set_visible(False)
            if len(series) > 1:
                axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
            image = io.BytesIO()
            figure.savefig(image, format="svg", bbox_inches="tight", metadata={"Date": None})
        self._plots.append((name, image.getvalue()))
        self._parts.append(f"![{ylabel}](PLOT-{name}.svg)")

    def origin(self, command: str, rows: Sequence[Mapping[str, Any]], note: str = "") -> None:
        """Where the numbers come from: command, machine, versions, dates."""
        days = sorted({str(row["when"])[:10] for row in rows if "when" in row})
        dates = "-" if not days else days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
        self.section("Where this comes from")
        self.text(f"- Command: `{command}`{note and f' ({note})'}")
        self._parts[-1] += f"\n- Date: {dates}\n- Machine: {machine()}\n- Versions: {versions()}"

    def __str__(self) -> str:
        """The page as Markdown."""
        return "\n\n".join(self._parts)

    def save(self, folder: Path, stem: str) -> Path:
        """Write ``STEM.md`` and a ``STEM-PLOT.svg`` per plot."""
        text = f"{self}\n"
        for name, image in self._plots:
            write_atomically(folder / f"{stem}-{name}.svg", image)
            text = text.replace(f"(PLOT-{name}.svg)", f"({stem}-{name}.svg)")
        write_atomically(folder / f"{stem}.md", text.encode())
        return folder / f"{stem}.md"


def require_plots() -> None:
    """Find out before hours of work whether plots can be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InputError("plots need matplotlib: pip install 'loadmaster[reproduce]'") from None
