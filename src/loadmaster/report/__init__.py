"""To be looked at: results as JSON documents for scripts, as tables for people, as HTML pages and as traces.

Names are imported when they are first used: a command that prints JSON needs no tables, and no command needs all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loadmaster.report._clusters import cluster_document, cluster_tables, clusters_table
    from loadmaster.report._diff import diff_document, diff_tables
    from loadmaster.report._documents import (
        coarsening_document,
        evaluation_document,
        failure_document,
        problem_document,
        to_json,
    )
    from loadmaster.report._explain import explain_document, explain_tables, op_document, op_tables
    from loadmaster.report._html import html_report
    from loadmaster.report._live import LiveProgress, describe_lessons, describe_search, describe_training
    from loadmaster.report._live_page import LivePage, live_html
    from loadmaster.report._palette import device_colours
    from loadmaster.report._run_tables import (
        change_text,
        devices_table,
        live_tables,
        optimized_tables,
        profile_document,
        profile_tables,
        run_tables,
        torch_run_tables,
        zoo_table,
    )
    from loadmaster.report._split_tables import split_tables
    from loadmaster.report._tables import (
        comparison_table,
        evaluation_tables,
        methods_table,
        problem_tables,
        show,
        solution_tables,
        warm_table,
    )
    from loadmaster.report._trace import trace_document

__all__ = [
    "LivePage",
    "LiveProgress",
    "change_text",
    "cluster_document",
    "cluster_tables",
    "clusters_table",
    "coarsening_document",
    "comparison_table",
    "describe_lessons",
    "describe_search",
    "describe_training",
    "device_colours",
    "devices_table",
    "diff_document",
    "diff_tables",
    "evaluation_document",
    "evaluation_tables",
    "explain_document",
    "explain_tables",
    "failure_document",
    "html_report",
    "live_html",
    "live_tables",
    "methods_table",
    "op_document",
    "op_tables",
    "optimized_tables",
    "problem_document",
    "problem_tables",
    "profile_document",
    "profile_tables",
    "run_tables",
    "show",
    "solution_tables",
    "split_tables",
    "to_json",
    "torch_run_tables",
    "trace_document",
    "warm_table",
    "zoo_table",
]

_HOME = {
    **dict.fromkeys(("cluster_document", "cluster_tables", "clusters_table"), "_clusters"),
    **dict.fromkeys(("diff_document", "diff_tables"), "_diff"),
    **dict.fromkeys(
        ("coarsening_document", "evaluation_document", "failure_document", "problem_document", "to_json"),
        "_documents",
    ),
    **dict.fromkeys(("explain_document", "explain_tables", "op_document", "op_tables"), "_explain"),
    "html_report": "_html",
    **dict.fromkeys(("LiveProgress", "describe_lessons", "describe_search", "describe_training"), "_live"),
    **dict.fromkeys(("LivePage", "live_html"), "_live_page"),
    "device_colours": "_palette",
    **dict.fromkeys(
        (
            "change_text",
            "devices_table",
            "live_tables",
            "optimized_tables",
            "profile_document",
            "profile_tables",
            "run_tables",
            "torch_run_tables",
            "zoo_table",
        ),
        "_run_tables",
    ),
    **dict.fromkeys(
        (
            "comparison_table",
            "evaluation_tables",
            "methods_table",
            "problem_tables",
            "show",
            "solution_tables",
            "warm_table",
        ),
        "_tables",
    ),
    "split_tables": "_split_tables",
    "trace_document": "_trace",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"loadmaster.report.{_HOME[name]}"), name)
    raise AttributeError(f"module 'loadmaster.report' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
