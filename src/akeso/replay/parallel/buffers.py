"""Buffers of a model over virtual ranks: each starts from the same values, and one result remains.

Running statistics of batch normalisation are averaged over the virtual ranks in the fixed tree. A buffer
that all virtual ranks change alike (a counter, a power iteration that sees weights alone) keeps that value.
Any other buffer would end up with whichever virtual rank came last, which depends on the number of
processes, and is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.nn.modules.batchnorm import _NormBase

from akeso.errors import Refused
from akeso.replay import digests
from akeso.replay.parallel.exchange import Exchange
from akeso.replay.parallel.tree import Merge, Node, owner

_NOT_RUN, _UNCHANGED = -2, -1
_SIGNED = (1 << 63) - 1  # digests travel as signed 64-bit integers


class Buffers:
    """The buffers of some modules during one step."""

    def __init__(self, modules: Sequence[torch.nn.Module]) -> None:
        self._buffers: dict[str, torch.Tensor] = {}
        self._averaged: set[str] = set()
        for number, root in enumerate(modules):
            prefix = f"{number}." if len(modules) > 1 else ""
            for path, module in root.named_modules():
                for name, buffer in module.named_buffers(recurse=False):
                    full = prefix + (f"{path}.{name}" if path else name)
                    self._buffers[full] = buffer
                    if isinstance(module, _NormBase) and name.startswith("running_"):
                        self._averaged.add(full)
        self._before = {name: buffer.detach().clone() for name, buffer in self._buffers.items()}
        self._versions = {name: buffer._version for name, buffer in self._buffers.items()}
        self._after: dict[int, dict[str, torch.Tensor]] = {}

    def restore(self) -> None:
        """Give every buffer the value it had when the step began."""
        with torch.no_grad():
            for name, buffer in self._buffers.items():
                if self._touched(name):
                    buffer.copy_(self._before[name])
                    self._versions[name] = buffer._version

    def collect(self, leaf: int) -> None:
        """Take what virtual rank ``leaf`` has changed, and restore the values from before."""
        self._after[leaf] = {
            name: buffer.detach().clone() for name, buffer in self._buffers.items() if self._touched(name)
        }
        self.restore()

    def _touched(self, name: str) -> bool:
        # The kernels of batch normalisation write running statistics without counting up the version.
        return name in self._averaged or self._buffers[name]._version != self._versions[name]

    def finish(self, exchange: Exchange, plan: Sequence[Merge], virtual: int) -> None:
        """Write the combined value of every changed buffer, the same on every process."""
        names = list(self._buffers)
        if not names:
            return
        table = self._digests(names, exchange, virtual)
        ran = [leaf for leaf in range(virtual) if table[leaf][0] != _NOT_RUN]
        for column, name in enumerate(names):
            seen = {table[leaf][column] for leaf in ran}
            if seen <= {_UNCHANGED}:
                continue
            if len(seen) == 1:
                value = self._value_of(name, ran[0], exchange, virtual)
            elif name in self._averaged:
                value = self._mean(name, ran, exchange, plan, virtual)
            else:
                raise Refused(
                    f"buffer {name} is changed differently by each virtual rank, and nothing says how to "
                    "combine the results; only running statistics of batch normalisation are averaged; "
                    "compute it from the combined gradient or the parameters after the step, or keep it "
                    "out of the model"
                )
            with torch.no_grad():
                self._buffers[name].copy_(value)

    def _digests(self, names: list[str], exchange: Exchange, virtual: int) -> list[list[int]]:
        mine = {
            leaf: [
                int(str(digests.of_tensors([after[name]])), 16) & _SIGNED if name in after else _UNCHANGED
                for name in names
            ]
            for leaf, after in self._after.items()
        }
        blank = [_NOT_RUN] * len(names)
        rows = [mine.get(leaf, blank) for leaf in range(virtual)]
        gathered = exchange.gather_integers([value for row in rows for value in row])
        width = len(names)
        return [
            gathered[owner(leaf, virtual, exchange.world)][leaf * width : (leaf + 1) * width]
            for leaf in range(virtual)
        ]

    def _value_of(self, name: str, leaf: int, exchange: Exchange, virtual: int) -> torch.Tensor:
        mine = self._after.get(leaf, {}).get(name, self._before[name])
        return exchange.broadcast([mine], owner(leaf, virtual, exchange.world))[0]

    def _mean(
        self, name: str, ran: list[int], exchange: Exchange, plan: Sequence[Merge], virtual: int
    ) -> torch.Tensor:
        def leaf_value(leaf: int) -> torch.Tensor:
            if leaf not in ran:
                return torch.zeros_like(self._before[name])
            return self._after[leaf].get(name, self._before[name])

        total = tree_sum(leaf_value, self._before[name], exchange, plan, virtual)
        return total / len(ran)


def tree_sum(
    leaf_value: Callable[[int], torch.Tensor],
    like: torch.Tensor,
    exchange: Exchange,
    plan: Sequence[Merge],
    virtual: int,
) -> torch.Tensor:
    """The sum of one tensor per virtual rank, in the order of the tree, on every process."""
    me, held = exchange.rank, {}
    for leaf in range(virtual):
        if owner(leaf, virtual, exchange.world) == me:
            node: Node = (leaf, leaf + 1)
            held[node] = leaf_value(leaf)
    for merge in plan:
        if merge.right_owner == me and merge.left_owner != me:
            exchange.send([held[merge.right]], merge.left_owner)
        elif merge.left_owner == me:
            right = (
                held[merge.right]
                if merge.right_owner == me
                else exchange.receive([like], merge.right_owner)[0]
            )
            held[merge.node] = held[merge.left] + right
    return exchange.broadcast([held.get((0, virtual), like)], 0)[0]
