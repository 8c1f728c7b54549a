"""Profiles: which detectors look at a run, and with which thresholds. Data, not code."""

from __future__ import annotations

from akeso.profiles._load import BUILT_IN, Profile, dump_profile, load_profile

__all__ = ["BUILT_IN", "Profile", "dump_profile", "load_profile"]
