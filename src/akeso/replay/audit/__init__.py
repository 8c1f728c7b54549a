"""Sources of nondeterminism in a training script, found by running it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from akeso.replay.audit.examine import audit_script as audit_script
    from akeso.replay.audit.report import AuditReport as AuditReport
    from akeso.replay.audit.report import Source as Source

_PLACES = {"AuditReport": "report", "Source": "report", "audit_script": "examine"}

__all__ = ["AuditReport", "Source", "audit_script"]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(f"akeso.replay.audit.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'akeso.replay.audit' has no attribute {name!r}")
