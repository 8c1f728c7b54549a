"""Settings that hold for all tests."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# Tests run on slow, shared machines: no test may depend on the clock, and a failure must come back.
settings.register_profile(
    "akeso", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.load_profile("akeso")

# Small trainings are quickest on one thread, and several processes then do not fight for the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Started in the background of a shell, Python is told to ignore Ctrl-C, and so would be every script the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The files whose tests take longest come first, so that no process is left alone with one of them at the end.
_LONGEST = (
    "test_tune.py",
    "test_script_treat.py",
    "test_script_program.py",
    "test_docs.py",
    "test_watched.py",
    "test_forecast.py",
    "test_examples.py",
    "test_search_pools.py",
    "test_diff.py",
    "test_detection.py",
    "test_audit.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long ones first; otherwise as collected."""
    items.sort(key=lambda item: item.path.name not in _LONGEST)
