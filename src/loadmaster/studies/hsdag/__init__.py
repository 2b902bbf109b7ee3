"""HSDAG (Duan et al., NeurIPS 2024): its tables on a model of its hardware and on this machine.

:mod:`~loadmaster.studies.hsdag.study` lists the cases, :mod:`~loadmaster.studies.hsdag.page` writes the page.
"""

from loadmaster.studies.hsdag.study import STUDY

__all__ = ["STUDY"]
