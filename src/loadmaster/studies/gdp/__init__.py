"""GDP (Zhou et al., 2019): its table, batch training, hold-outs and ablations on the zoo's graphs.

:mod:`~loadmaster.studies.gdp.study` lists the cases, :mod:`~loadmaster.studies.gdp.page` writes the page.
"""

from loadmaster.studies.gdp.study import STUDY

__all__ = ["STUDY"]
