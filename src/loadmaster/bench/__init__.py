"""The benchmark of the field: instances, best known values with proofs, runs, and a board that anyone can check.

- :func:`instances`, :func:`suites`: the table of instances; each makes its problem and knows its hash.
- :func:`read_known`, :func:`verify`, :func:`submit`: best known values, looked at again, and replaced by better ones.
- :func:`run_bench`: methods on instances, as rows that are kept; :func:`write_board`: the page that they make.
"""

from loadmaster.bench._board import board_data, board_page, read_rows, write_board
from loadmaster.bench._instances import (
    Instance,
    Suite,
    content_hash,
    exported,
    find_instances,
    instances,
    suites,
    version,
)
from loadmaster.bench._known import FOLDER, Known, read_known, write_known
from loadmaster.bench._methods import Method, find_method, run_program
from loadmaster.bench._pricing import certify
from loadmaster.bench._proofs import checked_bound, path_bound, price_bound, tried_all
from loadmaster.bench._running import Plan, bench_cases, run_bench, run_case
from loadmaster.bench._submitting import Verdict, certificate_for, submission, submit, write_submission
from loadmaster.bench._verifying import Check, independent_cost, schedule_error, verify

__all__ = [
    "FOLDER",
    "Check",
    "Instance",
    "Known",
    "Method",
    "Plan",
    "Suite",
    "Verdict",
    "bench_cases",
    "board_data",
    "board_page",
    "certificate_for",
    "certify",
    "checked_bound",
    "content_hash",
    "exported",
    "find_instances",
    "find_method",
    "independent_cost",
    "instances",
    "path_bound",
    "price_bound",
    "read_known",
    "read_rows",
    "run_bench",
    "run_case",
    "run_program",
    "schedule_error",
    "submission",
    "submit",
    "suites",
    "tried_all",
    "verify",
    "version",
    "write_board",
    "write_known",
    "write_submission",
]
