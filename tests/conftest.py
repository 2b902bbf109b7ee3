"""Fixtures and settings for all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from workload_files import WORKLOADS

# -- hypothesis: the same examples every time; HYPOTHESIS_PROFILE=explore draws anew, thorough by the thousand ----

# The first example of a test may compile its kernels.
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "repeat", deadline=None, max_examples=100, suppress_health_check=SLOW, derandomize=True, database=None
)
settings.register_profile("explore", parent=settings.get_profile("repeat"), derandomize=False)
settings.register_profile("thorough", parent=settings.get_profile("explore"), max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))

# -- public workloads ----------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def workloads() -> Path:
    """The folder of the published workloads."""
    if not (WORKLOADS / "reference.json").is_file():
        pytest.skip(
            f"the published workloads are not in {WORKLOADS}: set LOADMASTER_WORKLOADS to their folder"
        )
    return WORKLOADS


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """With CI=true and the workloads there, a skip is a failure: no build is green by testing less."""
    report = yield
    strict = os.environ.get("CI", "").lower() == "true" and WORKLOADS.is_dir()
    if strict and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI=true forbids: {call.excinfo.value if call.excinfo else ''}"
    return report
