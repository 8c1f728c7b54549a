"""Losses that align labels with a sequence (CTC): what they were given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from akeso.torch.mailbox import Tag

_NAMES = ("log_probs", "targets", "input_lengths", "target_lengths", "blank")


@dataclass(frozen=True, slots=True)
class Aligned:
    """Logarithms of probabilities, the classes last, and the labels they were aligned with, where these are known."""

    logarithms: torch.Tensor
    labels: torch.Tensor | None
    given: torch.Tensor | None
    wanted: torch.Tensor | None
    blank: int

    def items(self) -> list[tuple[Tag, torch.Tensor]]:
        """The readings of one batch."""
        logarithms = self.logarithms.float()
        low, high = torch.aminmax(logarithms)
        mass = (logarithms.exp().sum(-1) - 1).abs().mean()
        found: list[tuple[Tag, torch.Tensor]] = [
            ("output_min", low),
            ("output_max", high),
            ("output_mass_error", mass),
        ]
        if self.labels is not None and self.wanted is not None and self.labels.numel():
            blanks = self.labels == self.blank
            if self.labels.dim() == 2:
                counted = torch.arange(self.labels.shape[1], device=blanks.device) < self.wanted[:, None]
                found.append(("label_blank", (blanks & counted).sum() / counted.sum().clamp(min=1)))
            else:
                found.append(("label_blank", blanks.float().mean()))
        if self.given is not None and self.wanted is not None:
            found.append(("label_too_long", (self.wanted > self.given).float().mean()))
        return found


def aligned(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Aligned | None:
    """What a call of ``ctc_loss`` was given."""
    told = {**dict(zip(_NAMES, args, strict=False)), **kwargs}
    logarithms, labels = told.get("log_probs"), told.get("targets")
    if not isinstance(logarithms, torch.Tensor) or not logarithms.numel():
        return None
    batched = logarithms.dim() == 3 and isinstance(labels, torch.Tensor) and labels.dim() in (1, 2)
    device = labels.device if isinstance(labels, torch.Tensor) else logarithms.device
    given, wanted = (
        _lengths(told.get(name), device) if batched else None for name in ("input_lengths", "target_lengths")
    )
    known = isinstance(labels, torch.Tensor) and batched
    blank = told.get("blank", 0)
    return Aligned(
        logarithms.detach(),
        labels.detach() if known and isinstance(labels, torch.Tensor) else None,
        given,
        wanted,
        blank if isinstance(blank, int) else 0,
    )


def _lengths(told: Any, device: torch.device) -> torch.Tensor | None:
    """Lengths come as a tensor or as plain numbers."""
    if isinstance(told, torch.Tensor):
        return told.detach().to(device, non_blocking=True) if told.dim() == 1 else None
    if isinstance(told, list | tuple) and all(isinstance(one, int) for one in told):
        return torch.tensor(told, device=device)
    return None
