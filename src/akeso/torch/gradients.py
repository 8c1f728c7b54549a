"""Readings per parameter: gradient and weight norms before the step, the change the step makes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from akeso.signals import TEN_STATISTICS
from akeso.torch.mailbox import Tag

#: Entries of a tensor that are compared before and after a step; larger tensors are read with a stride.
_SLICE = 2048
#: Numbers of 16 bits: what is added to a weight of these is lost where it is less than some thousandth of it.
_COARSE = (torch.bfloat16, torch.float16)
Items = list[tuple[Tag, torch.Tensor]]


def dense(gradient: torch.Tensor) -> torch.Tensor:
    """The stored values of a gradient, sparse ones included."""
    if gradient.is_sparse:
        return gradient._values()
    to_local = getattr(gradient, "to_local", None)  # a DTensor's own shard
    return gradient if to_local is None else to_local()


def _plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is no kind of its own: not spread over processes, nor stored in some way."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)


def stride_of(count: int, most: int) -> int:
    """A stride that takes at most ``most`` of ``count`` entries, from all over: no factor in common with the layout.

    A multiple of nine would meet the same corner of every 3 × 3 kernel, and corners may see nothing but padding.
    """
    stride = math.ceil(count / most)
    while math.gcd(stride, count) > 1:
        stride += 1
    return stride


def _part(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().reshape(-1) if tensor.is_contiguous() else tensor.detach().flatten()
    count = flat.numel()
    return flat if count <= _SLICE else flat[:: stride_of(count, _SLICE)]


class StepReadings:
    """What one optimizer step does to its parameters; made before the step, finished after it."""

    def __init__(
        self,
        named: list[tuple[str, torch.Tensor]],
        *,
        statistics: bool,
        applied: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        self._named = named
        self._applied = applied  # gradients by their parameters, where those are not what is applied
        self._statistics = statistics
        self._before: list[torch.Tensor] = []
        self._asked: dict[str, torch.Tensor] = {}  # a part of the gradients of weights of 16 bits
        self.items: Items = []
        self.zero_sizes: dict[str, int] = {}

    def before(self) -> None:
        """Read weights and remember a part of them."""
        self._before = self._parts()
        norms = torch._foreach_norm([weight.detach() for _, weight in self._named])
        self.items += [
            (("weight_l2", name), norm) for (name, _), norm in zip(self._named, norms, strict=True)
        ]

    def _parts(self) -> list[torch.Tensor]:
        """A copy of a part of every weight, gathered by one operation per device and dtype."""
        parts = [_part(weight) for _, weight in self._named]
        groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for index, part in enumerate(parts):
            groups.setdefault((part.device, part.dtype), []).append(index)
        for indices in groups.values():
            copies = torch.cat([parts[index] for index in indices]).split(
                [len(parts[index]) for index in indices]
            )
            for index, copy in zip(indices, copies, strict=True):
                parts[index] = copy
        return parts

    def gradients(self) -> None:
        """Read the gradients as the optimizer is going to apply them."""
        given = (
            (name, weight.grad if self._applied is None else self._applied.get(id(weight)))
            for name, weight in self._named
        )
        named = [(name, dense(gradient)) for name, gradient in given if gradient is not None]
        named = [(name, grad) for name, grad in named if grad.numel()]
        if not named:
            return
        grads = [grad for _, grad in named]
        for signal, order in (("grad_l2", 2.0), ("grad_linf", math.inf), ("grad_nonzero", 0.0)):
            norms = torch._foreach_norm(grads, order)
            self.items += [((signal, name), norm) for (name, _), norm in zip(named, norms, strict=True)]
        self.zero_sizes = {name: grad.numel() for name, grad in named}
        coarse = {name: weight for name, weight in self._named if weight.dtype in _COARSE and _plain(weight)}
        self._asked = {
            name: _part(grad).float()
            for name, grad in named
            if name in coarse and grad.shape == coarse[name].shape
        }
        if self._statistics:
            for name, grad in named:
                self.items += ten_statistics("grad", name, grad)
            for name, weight in self._named:
                self.items += ten_statistics("weight", name, weight)

    def after(self) -> None:
        """Compare the remembered part with what it has become."""
        changes = torch._foreach_sub(self._parts(), self._before)
        change = torch._foreach_norm(changes)
        level = torch._foreach_norm(self._before)
        for (name, _), delta, base in zip(self._named, change, level, strict=True):
            self.items += [(("update_l2", name), delta), (("part_l2", name), base)]
        if self._asked:
            self._lost(dict(zip((name for name, _ in self._named), changes, strict=True)))
        self._before = []

    def _lost(self, changes: dict[str, torch.Tensor]) -> None:
        """What gradients ask of entries that the step leaves as they are: less than their rounding."""
        names = list(self._asked)
        asked = [self._asked[name] for name in names]
        lost = [torch.where(changes[name] == 0, self._asked[name], 0.0) for name in names]
        for signal, norms in (
            ("lost_l2", torch._foreach_norm(lost)),
            ("asked_l2", torch._foreach_norm(asked)),
        ):
            self.items += [((signal, name), norm) for name, norm in zip(names, norms, strict=True)]
        self._asked = {}


def ten_statistics(kind: str, name: str, tensor: torch.Tensor) -> Items:
    """BTTackler's ten statistics of one tensor."""
    flat = tensor.detach().reshape(-1).float()
    if flat.numel() > 1 << 20:  # quantiles sort: a strided million says the same
        flat = flat[:: stride_of(flat.numel(), 1 << 20)]
    mean = flat.mean()
    centred = flat - mean
    var = (centred * centred).mean()
    std = var.sqrt().clamp_min(1e-30)
    quartiles = torch.quantile(flat, torch.tensor([0.25, 0.5, 0.75], device=flat.device))
    scaled = centred / std
    values: dict[str, torch.Tensor] = {
        "mean": mean, "var": var, "median": quartiles[1], "q1": quartiles[0], "q3": quartiles[2],
        "min": flat.min(), "max": flat.max(), "skew": (scaled**3).mean(), "kurtosis": (scaled**4).mean(),
        "zero": (flat == 0).float().mean(),
    }  # fmt: skip
    return [((f"{kind}_{statistic}", name), values[statistic]) for statistic in TEN_STATISTICS]


def readings_of(delivery: dict[Any, Any], sizes: dict[str, int]) -> dict[str, dict[str, float]]:
    """The delivered raw numbers of a step as readings by signal and scope."""
    out: dict[str, dict[str, float]] = {}
    squares = raw = 0.0
    for (signal, name), value in delivery.items():
        if signal == "grad_nonzero":
            out.setdefault("grad_zero", {})[name] = 1.0 - value / max(sizes.get(name, 1), 1)
        elif signal == "update_l2":
            base = delivery[("part_l2", name)]
            if base > 0:  # a zero bias has no scale to compare its change with
                out.setdefault("update_ratio", {})[name] = value / base
        elif signal == "lost_l2":
            asked = delivery[("asked_l2", name)]
            if asked > 0:
                out.setdefault("update_lost", {})[name] = (value / asked) ** 2
        elif signal not in ("part_l2", "asked_l2"):
            out.setdefault(signal, {})[name] = value
            if signal == "grad_l2":
                raw += 1
                squares += value * value
    if raw:
        out["grad_norm"] = {"": math.sqrt(squares)}
    return out
