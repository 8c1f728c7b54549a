"""The processes that share one run: which of them writes, and whether they carry the same values.

A snapshot holds what the leading process carries, and every process goes on from that. A value that differs
between the processes, like the loss over a process's own share of the data, would come back as the leader's:
so the digests of what each carries are laid beside each other once, through the store of the process group,
and what differs is named. Nobody waits for anybody.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import torch.distributed as dist

from akeso.replay.state_digest import exact_digest

_PATIENCE = 100
"""Boundaries at which the leader looks whether the others have told."""


class Ranks:
    """This process among those of its run."""

    def __init__(self) -> None:
        self._grouped = dist.is_available() and dist.is_initialized()
        if self._grouped:
            self.rank, self.world = dist.get_rank(), dist.get_world_size()
        else:
            self.world = int(os.environ.get("WORLD_SIZE", "1"))
            self.rank = int(os.environ.get("RANK", "0")) if self.world > 1 else 0
        self._mine: dict[str, str] = {}
        self._left = 0

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes the folder."""
        return self.rank == 0

    def tell(self, held: Mapping[str, Any]) -> None:
        """Let the leader know what this process carries; the leader itself begins to look out."""
        if self.world == 1 or not dist.is_initialized():
            return
        self._mine = {path: exact_digest(entry) for path, entry in held.items()}
        self._left = _PATIENCE if self.leads else 0
        if not self.leads:
            _store().set(_key(self.rank), json.dumps(self._mine))

    def differing(self) -> dict[str, list[int]]:
        """Return, once all have told, which variables differ from the leader's, and in which processes."""
        if not self._left:
            return {}
        self._left -= 1
        others = range(1, self.world)
        if not _store().check([_key(rank) for rank in others]):
            return {}
        self._left = 0
        found: dict[str, list[int]] = {}
        for rank in others:
            theirs = json.loads(_store().get(_key(rank)))
            for path in sorted({*self._mine, *theirs}):
                if self._mine.get(path) != theirs.get(path):
                    found.setdefault(path, []).append(rank)
        return found


def _key(rank: int) -> str:
    return f"akeso/held/{rank}"


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()
