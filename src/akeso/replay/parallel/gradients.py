"""Gradients of virtual ranks as flat sums, added in the fixed tree and put back into ``.grad``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from akeso.errors import Refused
from akeso.replay.parallel.exchange import Exchange
from akeso.replay.parallel.tree import Merge, Node

# Sums of 16-bit gradients would lose most of what they add; they are added in 32 bits and rounded once.
_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


@dataclass(frozen=True, slots=True)
class Share:
    """What one node of the tree carries: gradient sums, and the counts that go with them."""

    flats: tuple[torch.Tensor, ...]
    """One flat buffer per (device, dtype) group of the parameters."""
    control: torch.Tensor
    """Total weight, weighted loss, then for each parameter how many virtual ranks gave it a gradient."""

    def __add__(self, other: Share) -> Share:
        flats = tuple(mine + theirs for mine, theirs in zip(self.flats, other.flats, strict=True))
        return Share(flats, self.control + other.control)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Everything that travels, in a fixed order."""
        return [*self.flats, self.control]


class Layout:
    """Which parameter lies where in the flat buffers; the same on every process."""

    def __init__(self, named: Sequence[tuple[str, torch.nn.Parameter]]) -> None:
        self.names = [name for name, _ in named]
        self.parameters = [parameter for _, parameter in named]
        self._groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for index, parameter in enumerate(self.parameters):
            kind = (parameter.device, _WIDER.get(parameter.dtype, parameter.dtype))
            self._groups.setdefault(kind, []).append(index)
        on_mps = any(device.type == "mps" for device, _ in self._groups)
        self._control_type = torch.float32 if on_mps else torch.float64
        self._control_device = self.parameters[0].device if self.parameters else torch.device("cpu")

    def empty(self) -> Share:
        """The share of a virtual rank without samples."""
        flats = tuple(
            torch.zeros(sum(self.parameters[i].numel() for i in members), dtype=dtype, device=device)
            for (device, dtype), members in self._groups.items()
        )
        return Share(flats, self._zero_control())

    def collect(self, weight: float | torch.Tensor, loss: torch.Tensor | None, *, weighted: bool) -> Share:
        """Take ``.grad`` of every parameter as the share of the virtual rank that has just run."""
        control = self._zero_control()
        scale = torch.as_tensor(weight, dtype=control.dtype, device=control.device)
        control[0] = scale
        if loss is not None:
            value = loss.detach().to(control)
            control[1] = _scaled(value, scale) if weighted else value
        flats = []
        for (device, dtype), members in self._groups.items():
            pieces = []
            for index in members:
                parameter = self.parameters[index]
                gradient = parameter.grad
                if gradient is None:
                    pieces.append(torch.zeros(parameter.numel(), dtype=dtype, device=device))
                    continue
                if gradient.layout is not torch.strided:
                    raise Refused(
                        f"the gradient of {self.names[index]} is sparse; sums of sparse gradients have no "
                        "fixed order; build the embedding with sparse=False"
                    )
                control[2 + index] = 1
                pieces.append(gradient.detach().to(dtype).reshape(-1))
                parameter.grad = None
            flat = torch.cat(pieces)
            flats.append(_scaled(flat, scale.to(flat)) if weighted else flat)
        return Share(tuple(flats), control)

    def put_back(self, total: Share, before: Sequence[torch.Tensor | None], *, weighted: bool) -> None:
        """Write the combined gradient into ``.grad``, on top of what was there before the step."""
        present = (total.control[2:] > 0).tolist()
        weight = total.control[0]
        weight = torch.where(weight == 0, torch.ones_like(weight), weight)  # nothing counted: a zero gradient
        for flat, members in zip(total.flats, self._groups.values(), strict=True):
            combined = flat / weight.to(flat) if weighted else flat
            offset = 0
            for index in members:
                parameter = self.parameters[index]
                piece = combined[offset : offset + parameter.numel()].view(parameter.shape)
                offset += parameter.numel()
                earlier = before[index]
                parameter.grad = earlier
                if not present[index]:
                    continue  # no virtual rank used it: its gradient stays what it was, None included
                gradient = torch.empty_like(parameter, requires_grad=False).copy_(piece)
                parameter.grad = gradient if earlier is None else earlier.add_(gradient)

    def _zero_control(self) -> torch.Tensor:
        return torch.zeros(2 + len(self.parameters), dtype=self._control_type, device=self._control_device)


def _scaled(values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Values times a weight; zero means absent, even where a mean over nothing has given NaN."""
    return torch.where(scale == 0, torch.zeros_like(values), values * scale)


class Tree:
    """Adds shares as they come and, at the end, over the processes: each node exactly as the plan says."""

    def __init__(self, plan: Sequence[Merge], exchange: Exchange) -> None:
        self._plan = plan
        self._exchange = exchange
        self._parents = {child: merge for merge in plan for child in (merge.left, merge.right)}
        self._held: dict[Node, Share] = {}

    def add(self, leaf: int, share: Share) -> None:
        """Hand in one virtual rank's share; whatever can be added already is, to free memory early."""
        node: Node = (leaf, leaf + 1)
        self._held[node] = share
        while node in self._parents:
            merge = self._parents[node]
            if merge.left not in self._held or merge.right not in self._held:
                break
            self._held[merge.node] = self._held.pop(merge.left) + self._held.pop(merge.right)
            node = merge.node

    def total(self, like: Share, virtual: int) -> Share:
        """The sum over all virtual ranks, the same bits on every process."""
        me = self._exchange.rank
        for merge in self._plan:
            if merge.left_owner == merge.right_owner:
                if merge.left_owner == me and merge.left in self._held:
                    self._held[merge.node] = self._held.pop(merge.left) + self._held.pop(merge.right)
            elif merge.right_owner == me:
                self._exchange.send(self._held.pop(merge.right).tensors, merge.left_owner)
            elif merge.left_owner == me:
                *flats, control = self._exchange.receive(like.tensors, merge.right_owner)
                self._held[merge.node] = self._held.pop(merge.left) + Share(tuple(flats), control)
        mine = self._held.pop((0, virtual), like)
        *flats, control = self._exchange.broadcast(mine.tensors, 0)
        return Share(tuple(flats), control)
