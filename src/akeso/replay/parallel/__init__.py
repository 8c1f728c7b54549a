"""Data parallelism that gives the same bits on any number of processes."""

from __future__ import annotations

from akeso.replay.parallel.loop import step
from akeso.replay.parallel.ranks import VirtualRanks
from akeso.replay.parallel.tree import virtual_ranks, virtual_slices

__all__ = ["VirtualRanks", "step", "virtual_ranks", "virtual_slices"]
