"""The published workloads by any method: the study of ``loadmaster reproduce exact`` with more options, printed."""

from loadmaster.studies.exact import STUDY

__all__ = ["STUDY"]

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
