"""The tables of the papers, made again: cases are run and kept, and a page is written from what was kept.

One module per system (:mod:`~loadmaster.reproduce.hsdag`, :mod:`~loadmaster.reproduce.gdp`,
:mod:`~loadmaster.reproduce.exact`); each lists its cases and says how its page is made of their rows.
"""

from loadmaster.reproduce._page import require_plots
from loadmaster.reproduce._study import STUDIES, Case, Outcome, Row, Scope, Study, reproduce

__all__ = ["STUDIES", "Case", "Outcome", "Row", "Scope", "Study", "reproduce", "require_plots"]
