"""Studies: cases that are run once and kept, and pages made of what was kept.

A :class:`Study` says what there is to run and how its rows become a page. The reproductions of the papers are folders
here (:mod:`~loadmaster.studies.hsdag`, :mod:`~loadmaster.studies.gdp`, :mod:`~loadmaster.studies.exact`; the command
``loadmaster reproduce``), and every program in ``benchmarks/`` that makes a table is one, too.

A worked example, ``sizes.py``::

    from functools import partial

    from loadmaster import api
    from loadmaster.studies import Case, Scope, Study, placed


    def cases(scope):
        names = ["layered-40", "layered-300"][: 1 if scope.quick else 2]
        seconds = scope["seconds"]
        return [Case({"graph": name, "seconds": seconds}, partial(run, name, seconds)) for name in names]


    def run(name, seconds):
        return placed(api.problem(f"zoo:{name}", "2acc+1cpu"), "auto", budget=seconds)


    def write(page, scope, rows):
        page.table(("graph", "ms", "gap %"), [(r["graph"], 1e3 * r["cost"], 100 * r["gap"]) for r in rows])


    def options(parser):
        parser.add_argument("--seconds", type=float, default=1.0)


    STUDY = Study("sizes", "auto on two graphs", cases, write, options)

    if __name__ == "__main__":
        STUDY.main()

``python sizes.py --rows sizes.jsonl`` runs both cases and prints the page: the table, then command, date, machine and
versions. Killed and started again it runs only what is missing; ``--fresh`` begins again, ``--json`` prints the rows,
``--quick`` asks for less. What a row depends on belongs in the key of its case: another ``--seconds`` is another case.
"""

from loadmaster.studies.harness.page import Page, number, percent, ratio, require_plots
from loadmaster.studies.harness.placing import placed, solved
from loadmaster.studies.harness.provenance import machine, versions
from loadmaster.studies.harness.regret import (
    draw_curves,
    mean_over_graphs,
    read_regrets,
    regret_curves,
    regrets,
)
from loadmaster.studies.harness.rows import Rows, read_entries
from loadmaster.studies.harness.study import Case, Outcome, Row, Scope, Study, run_cases
from loadmaster.studies.papers import STUDIES, reproduce

__all__ = [
    "STUDIES",
    "Case",
    "Outcome",
    "Page",
    "Row",
    "Rows",
    "Scope",
    "Study",
    "draw_curves",
    "machine",
    "mean_over_graphs",
    "number",
    "percent",
    "placed",
    "ratio",
    "read_entries",
    "read_regrets",
    "regret_curves",
    "regrets",
    "reproduce",
    "require_plots",
    "run_cases",
    "solved",
    "versions",
]
