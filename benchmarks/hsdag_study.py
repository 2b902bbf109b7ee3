"""The modelled machine and the graphs of our study of the HSDAG paper: see ``loadmaster reproduce hsdag``."""

from loadmaster.reproduce._hsdag_problems import MODELS, kernel_network, machine, study_problem

__all__ = ["MODELS", "kernel_network", "machine", "study_problem"]
