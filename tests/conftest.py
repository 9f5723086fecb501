"""Settings of all tests."""

import os
import tempfile

import pytest
from hypothesis import HealthCheck, settings

# Timing is not what the property tests are about, and these machines are shared. In CI a red run must be red again.
settings.register_profile(
    "headrace",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("headrace")


def pytest_configure(config: pytest.Config) -> None:
    """Keep what Headrace derives of foreign corpora out of the user's cache folder, in child processes too."""
    cache = tempfile.TemporaryDirectory(prefix="headrace-tests-")
    config.add_cleanup(cache.cleanup)
    os.environ["XDG_CACHE_HOME"] = cache.name


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """With HEADRACE_ALL_EXTRAS set, a test that is skipped because something is not installed fails."""
    if os.environ.get("HEADRACE_ALL_EXTRAS") and call.excinfo is not None:
        error = call.excinfo.value
        if isinstance(error, pytest.skip.Exception) and "could not import" in str(error):
            raise AssertionError(f"{item.nodeid}: an extra is missing: {error}")
