"""The figures of all campaigns in a folder, as the table of ``docs/reliability.md``.

python -m campaigns.figures [FOLDER]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["main", "table"]


def table(folder: Path) -> str:
    """A row for each campaign and seed; hours are those in which its process was not stopped."""
    lines = ["| campaign | what | hours | CPU hours | found |", "|---|---|---|---|---|"]
    for file in sorted(folder.glob("*/figures.json")):
        figures: dict[str, Any] = json.loads(file.read_text())
        found = sum(figures["found"].values())
        awake, cpu = figures["awake_seconds"] / 3600, figures["cpu_seconds"] / 3600
        lines.append(
            f"| {figures['campaign']}, seed {figures['seed']} | {_what(figures)} | {awake:.2f} | {cpu:.2f} | {found} |"
        )
    return "\n".join(lines)


def _what(figures: dict[str, Any]) -> str:
    counts, name = figures["counts"], figures["campaign"]
    if name.startswith("differential"):
        parts = [f"{figures['cases']:,} problems", f"{counts.get('evaluations', 0):,} evaluations"]
        if counts.get("runs"):
            parts.append(f"{counts['runs']:,} runs of methods")
        return ", ".join(parts)
    if name.startswith("fuzz"):
        alone = counts.get("in processes of their own", 0)
        return f"{figures['cases']:,} mutated files, {alone:,} of them in processes of their own"
    if name.startswith("kill"):
        return f"{counts.get('kills', 0):,} kills, {counts.get('other cases', 0):,} other disturbances"
    if name.startswith("soak"):
        return f"{counts.get('requests', 0):,} requests, {counts.get('requests that fail', 0):,} that fail"
    return f"{counts.get('files', figures['cases']):,} files made by hand"


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    words = sys.argv[1:] if arguments is None else arguments
    print(table(Path(words[0] if words else "build/campaigns")))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
