"""HiGHS in a process of its own: run as a script, never imported (highspy and OR-tools do not share a process).

Arguments: an ``.npz`` file with the arrays of a mixed-integer program, and the seconds it may take. Lines on
standard input are better solutions (JSON lists of all columns); lines on standard output are news
(JSON objects with ``solution``, ``bound`` or ``end``). A closed standard input ends the process.
"""

import json
import os
import sys
import threading
from typing import Any

import highspy
import numpy as np


def say(**news: object) -> None:
    """One line of news."""
    print(json.dumps(news), flush=True)


def model_of(data: dict[str, np.ndarray]) -> highspy.HighsLp:
    """The program: ``binaries`` first, then the terms of the objective."""
    lp = highspy.HighsLp()
    binaries, columns = int(data["binaries"]), len(data["cost"])
    lp.num_col_, lp.num_row_ = columns, len(data["row_lower"])
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = data["cost"], np.zeros(columns), data["upper"]
    lp.row_lower_, lp.row_upper_ = data["row_lower"], data["row_upper"]
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_ = data["ptr"], data["index"]
    lp.a_matrix_.value_ = data["value"]
    kinds = [highspy.HighsVarType.kInteger] * binaries
    lp.integrality_ = kinds + [highspy.HighsVarType.kContinuous] * (columns - binaries)
    return lp


class Mailbox:
    """The latest solution that came in on standard input."""

    def __init__(self) -> None:
        self.columns: list[float] | None = None
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self.columns = json.loads(line)
        os._exit(0)  # the other side is gone

    def take(self) -> list[float] | None:
        """The solution, once."""
        columns, self.columns = self.columns, None
        return columns


def main(path: str, seconds: float) -> None:
    """Solve the program and tell what is found."""
    with np.load(path) as file:
        data = dict(file)
    highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.silent()
    for option, value in (
        ("threads", 1),
        ("random_seed", int(data["seed"])),
        ("mip_feasibility_tolerance", 1e-9),
        ("primal_feasibility_tolerance", 1e-9),
        ("dual_feasibility_tolerance", 1e-9),
        ("mip_rel_gap", 1e-9),
        ("mip_abs_gap", 1e-9),
        ("time_limit", seconds),
    ):
        highs.setOptionValue(option, value)
    highs.passModel(model_of(data))
    binaries = int(data["binaries"])
    start = data["start"]
    highs.setSolution(len(start), np.arange(len(start), dtype=np.int32), start)
    mailbox = Mailbox()
    bound = -np.inf

    def tell(event: Any) -> None:
        nonlocal bound
        value = float(event.data_out.mip_dual_bound)
        if np.isfinite(value) and value > bound:
            bound = value
            say(bound=bound)

    def improved(event: Any) -> None:
        values = np.asarray(event.data_out.mip_solution)
        # Its bound is not taken: it may be the one of a smaller program, solved on the way.
        say(solution=np.flatnonzero(values[:binaries] > 0.5).tolist())

    def user(event: Any) -> None:
        columns = mailbox.take()
        if columns is not None and event.data_in is not None:
            event.data_in.setSolution(np.array(columns))

    highs.cbMipImprovingSolution += improved
    highs.cbMipInterrupt += tell
    highs.cbMipUserSolution += user
    highs.run()
    status = highs.getModelStatus()
    value = float(highs.getInfo().mip_dual_bound)
    if status == highspy.HighsModelStatus.kInfeasible:
        say(end="infeasible")
    else:
        if np.isfinite(value):
            say(bound=value)
        say(end=highs.modelStatusToString(status))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
