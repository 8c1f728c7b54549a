"""Edits and prescriptions, defined beside the remedies that write them."""

from __future__ import annotations

from akeso.remedies.edit import REMEDIES, Edit, Prescription

__all__ = ["REMEDIES", "Edit", "Prescription"]
