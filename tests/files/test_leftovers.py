"""What a killed process leaves is taken away by the next one; what belongs to others stays."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from loadmaster.files import common_folder, scratch_folder, sweep_by_process, sweep_scratch, write_atomically
from loadmaster.files._leftovers import beside

KILLED = """
import os, signal, sys
from pathlib import Path
from loadmaster.files import scratch_folder
from loadmaster.files._leftovers import beside
beside(Path(sys.argv[1])).write_bytes(b"half")
folder = scratch_folder()
(Path(folder.name) / "program.npz").write_bytes(b"x")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A folder for temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder
    tempfile.tempdir = None


def test_the_next_run_takes_away_what_a_killed_one_left(tmp_path, scratch):
    target = tmp_path / "plan.json"
    done = subprocess.run([sys.executable, "-c", KILLED, str(target)])
    assert done.returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob(".plan.json.*.new"))) == 1
    assert len(list(scratch.iterdir())) == 1
    write_atomically(target, b"whole")
    assert not list(tmp_path.glob(".plan.json.*.new"))
    assert target.read_bytes() == b"whole"
    with scratch_folder() as folder:
        assert [path.name for path in scratch.iterdir()] == [Path(folder).name]
    assert not list(scratch.iterdir())


def test_what_belongs_to_others_stays(tmp_path, scratch):
    target = tmp_path / "plan.json"
    mine = beside(target)
    mine.write_bytes(b"being written")
    owner = re.search(r"([0-9a-f]{6}-[0-9a-f]{6}-\d+-\d+)", mine.name)[1]
    host, boot, _, start = owner.split("-")
    elsewhere = owner.replace(host, "ffffff" if host != "ffffff" else "000000", 1)
    others = [
        tmp_path / f".plan.json.{elsewhere}.000000000000.new",  # of another machine
        tmp_path / ".plan.json.0123456789ab.new",  # of nobody we know
        tmp_path / ".plan.json.backup.new",
        tmp_path / f".other.json.{host}-{boot}-999999999-1.000000000000.new",  # of another file
        tmp_path
        / f".plan.json.{host}-{boot}-{os.getppid()}-{_start(os.getppid())}.000000000000.new",  # it still runs
    ]
    for path in others:
        path.touch()
    gone = (
        tmp_path / f".plan.json.{host}-{boot}-{os.getpid()}-1{start}.000000000000.new"
    )  # the number is used again
    gone.touch()
    (scratch / f"loadmaster-{elsewhere}-x").mkdir()
    (scratch / "loadmaster-notes").mkdir()
    (scratch / f"loadmaster-{host}-{boot}-999999999-1-x").symlink_to(tmp_path)
    write_atomically(target, b"whole")
    sweep_scratch()
    assert all(path.exists() for path in [mine, *others])
    assert not gone.exists()
    assert len(list(scratch.iterdir())) == 3


def _start(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def test_folders_of_processes_that_are_gone_are_taken_away_from_a_common_one(scratch, monkeypatch):
    home = common_folder("ray")
    assert home is not None
    assert home == common_folder("ray")
    assert home.stat().st_mode & 0o777 == 0o700
    names = ["session_1_999999999", f"session_2_{os.getpid()}", "session_latest", "session_x"]
    for name in names:
        (home / name).mkdir()
    sweep_by_process(home, r"session_\d_(\d+)")
    assert sorted(path.name for path in home.iterdir()) == sorted(names[1:])
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    (scratch / f"loadmaster-ray-12345-{home.name.rpartition('-')[2]}").symlink_to(home)
    assert common_folder("ray") is None, "what somebody else has put there is not used"
