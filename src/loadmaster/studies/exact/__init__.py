"""The exact algorithms on their published workloads (Tarnawski et al., NeurIPS 2020).

:mod:`~loadmaster.studies.exact.study` lists the cases, :mod:`~loadmaster.studies.exact.page` writes the page.
"""

from loadmaster.studies.exact.study import STUDY

__all__ = ["STUDY"]
