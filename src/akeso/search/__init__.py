"""End hopeless trials of a hyperparameter search by diagnosis: Optuna, Ray Tune, and a simulator.

Everything here is loaded when it is first used: importing this package needs neither Optuna nor Ray, and what
needs one of them says which to install.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from akeso.search.health import Health, watch
    from akeso.search.informed import InformedSampler
    from akeso.search.measures import average_time_saved, time_saved, top_hit_ratio, tsba
    from akeso.search.profiles import SearchProfile, search_profile
    from akeso.search.pruner import DiagnosisPruner
    from akeso.search.recorded import RecordedStudy, RecordedTrial, StudyRecorder, load
    from akeso.search.recording import record
    from akeso.search.simulation import simulate
    from akeso.search.stopper import DiagnosisStopper
    from akeso.search.tune import ray_report, ray_watch
    from akeso.search.verdict import Verdict

__all__ = [
    "DiagnosisPruner",
    "DiagnosisStopper",
    "Health",
    "InformedSampler",
    "RecordedStudy",
    "RecordedTrial",
    "SearchProfile",
    "StudyRecorder",
    "Verdict",
    "average_time_saved",
    "load",
    "ray_report",
    "ray_watch",
    "record",
    "search_profile",
    "simulate",
    "time_saved",
    "top_hit_ratio",
    "tsba",
    "watch",
]

_HOMES = {
    "DiagnosisPruner": "pruner",
    "DiagnosisStopper": "stopper",
    "Health": "health",
    "InformedSampler": "informed",
    "RecordedStudy": "recorded",
    "RecordedTrial": "recorded",
    "SearchProfile": "profiles",
    "StudyRecorder": "recorded",
    "Verdict": "verdict",
    "average_time_saved": "measures",
    "load": "recorded",
    "ray_report": "tune",
    "ray_watch": "tune",
    "record": "recording",
    "search_profile": "profiles",
    "simulate": "simulation",
    "time_saved": "measures",
    "top_hit_ratio": "measures",
    "tsba": "measures",
    "watch": "health",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'akeso.search' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f"akeso.search.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
