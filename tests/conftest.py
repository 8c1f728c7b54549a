"""Settings that hold for all tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Tests run on slow, shared machines: no test may depend on the clock, and a failure must come back.
settings.register_profile(
    "akeso", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.load_profile("akeso")

# Small trainings are quickest on one thread, and several processes then do not fight for the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
