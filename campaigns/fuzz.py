"""Wrong files of every format: each is taken, or refused in one sentence; nothing else happens.

    python -m campaigns.fuzz --hours 8 [--only onnx] [--share 0.02]
    python -m campaigns.fuzz --hostile

A case is one file, made from a good one of the corpus by a mutator that knows the format. Most are read in this
process; a share goes through the command line in a process of its own, where CPU time, memory and the exit code are
looked at, too. ``--hostile`` runs the files that were made by hand (``campaigns/_hostile.py``), all through the
command line. Good files that something was found with can be added to ``FOLDER/corpus/FORMAT``.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import tempfile
import time
import warnings
from pathlib import Path

from campaigns._campaign import Campaign, parser
from campaigns._commands import MEMORY, SECONDS, Commands, complaint
from campaigns._formats import FORMATS, Format, fixed_files
from campaigns._mutators import damaged
from loadmaster.errors import LoadmasterError

__all__ = ["check_file", "main"]


def check_file(kind: Format, path: Path) -> str:
    """Read a file in this process: ``taken`` or ``refused``.

    Raises
    ------
    AssertionError : it took too long, or its message is no sentence.
    Exception : whatever else is raised, is wrong.
    """
    before = _memory()
    for _ in range(2):  # a file that is slow is slow twice; kernels compile once
        began = time.process_time()
        try:
            kind.read(path)
            outcome = "taken"
        except LoadmasterError as error:
            outcome = "refused"
            text = str(error)
            if not text.strip() or len(text) > 1001:
                raise AssertionError(f"a message of {len(text)} characters: {text[:300]}") from None
        spent = time.process_time() - began
        if spent <= SECONDS:
            break
    else:
        raise AssertionError(f"{spent:.1f} CPU seconds")
    grown = _memory() - before
    if grown > MEMORY - 2 * 10**8:
        raise AssertionError(f"{grown:,} bytes of memory")
    return outcome


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Fuzz:
    """Files, one after another, in a folder in memory."""

    def __init__(self, campaign: Campaign, folder: Path, only: str, share: float) -> None:
        self.campaign, self.folder, self.share = campaign, folder, share
        self.commands = Commands() if share > 0 else None
        self.formats = [kind for kind in FORMATS if only in ("", kind.name)]
        self.fixed = fixed_files(folder)
        self.corpus = {
            kind.name: sorted((campaign.folder.parent / "corpus" / kind.name).glob("*"))
            for kind in self.formats
        }

    def content(self, kind: Format, rng: random.Random) -> bytes:
        """A wrong file."""
        more = self.corpus[kind.name]
        if more and rng.random() < 0.2:
            return damaged(rng.choice(more).read_bytes(), rng)
        return kind.make(rng)

    def case(self, number: int) -> None:
        """One file."""
        rng = random.Random(f"{self.campaign.seed} {number}")
        kind = rng.choices(self.formats, [kind.weight for kind in self.formats])[0]
        content = self.content(kind, rng)
        alone = bool(kind.commands) and self.commands is not None and rng.random() < self.share
        file = self.folder / f"case{kind.suffix}"
        file.write_bytes(content)
        self.campaign.begins(f"{kind.name} {'alone' if alone else ''}")
        why: object = None
        try:
            if alone:
                why = self._alone(kind, file, rng)
            else:
                self.campaign.counts[f"{kind.name} {check_file(kind, file)}"] += 1
        except Exception as error:
            why = error
        self.campaign.ended()
        self.campaign.counts["in processes of their own" if alone else "in one process"] += 1
        if why is not None:
            self.campaign.finding(f"fuzz-{kind.name}", content, kind.suffix, why)

    def _alone(self, kind: Format, file: Path, rng: random.Random) -> str | None:
        words = [
            self.fixed.get(word, word).replace("FILE", str(file)).replace("OUT", str(self.folder / "out"))
            for word in rng.choice(kind.commands)
        ]
        if kind.suffix == ".xml":
            from campaigns._formats import _ir

            file.with_suffix(".bin").write_bytes(_ir()[1])
        assert self.commands is not None
        ran = self.commands.run(words, self.folder)
        self.campaign.counts[f"exit code {ran.code}"] += 1
        wrong = complaint(ran)
        return None if wrong is None else f"{' '.join(words)}: {wrong}"


def hostile(campaign: Campaign, folder: Path, every: int) -> int:
    """Run the files that were made by hand, or every so many of them."""
    from campaigns._hostile import cases

    commands = Commands()
    for number, made in enumerate(cases(folder)):
        if number < campaign.cases or number % every != campaign.seed % every:
            continue
        if campaign.done:
            break
        ran = commands.run(made.words, folder)
        wrong = complaint(ran, refused=made.refused)
        campaign.counts[f"exit code {ran.code}"] += 1
        largest = campaign.extra.setdefault("largest memory", 0)
        campaign.extra["largest memory"] = max(largest, ran.memory)
        campaign.extra["longest CPU time"] = max(campaign.extra.get("longest CPU time", 0.0), ran.cpu)
        if wrong is not None:
            campaign.finding("hostile", " ".join(made.words).encode(), ".txt", f"{made.name}: {wrong}")
        campaign.cases = number + 1
        campaign.counts["files"] += 1
        campaign.tick()
    commands.close()
    campaign.close()
    return 1 if campaign.found else 0


def memory_folder() -> Path:
    """A new folder, in memory where that is possible."""
    home = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="campaign-", dir=home))


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign."""
    found = parser("fuzz", "Wrong files of every format.")
    found.add_argument("--only", default="", metavar="FORMAT", help="one format only")
    found.add_argument(
        "--share", type=float, default=0.02, help="share of files in processes of their own (0.02)"
    )
    found.add_argument(
        "--hostile", action="store_true", help="the files made by hand, in place of mutated ones"
    )
    found.add_argument(
        "--every", type=int, default=1, metavar="N", help="with --hostile: every Nth file only (1)"
    )
    options: argparse.Namespace = found.parse_args(arguments)
    warnings.filterwarnings("ignore")
    name = "hostile" if options.hostile else f"fuzz-{options.only}" if options.only else "fuzz"
    campaign = Campaign(name, options)
    folder = memory_folder()
    try:
        if options.hostile:
            return hostile(campaign, folder, options.every)
        fuzz = Fuzz(campaign, folder, options.only, options.share)
        code = campaign.run(fuzz.case)
        if fuzz.commands is not None:
            fuzz.commands.close()
        return code
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    raise SystemExit(main())
