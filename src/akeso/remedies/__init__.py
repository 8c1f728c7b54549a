"""Cures as data: what could be changed in a training, dosed by its history."""

from __future__ import annotations

from akeso.remedies._base import Remedy
from akeso.remedies.candidates import TABLE, Candidate, candidates, treatable
from akeso.remedies.edit import REMEDIES, Edit, Prescription

__all__ = ["REMEDIES", "TABLE", "Candidate", "Edit", "Prescription", "Remedy", "candidates", "treatable"]
