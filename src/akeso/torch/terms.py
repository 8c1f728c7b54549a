"""Losses side by side: what each of them is of the whole, and of what a constant prediction would lose."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from akeso.torch.accounts import TargetAccount
from akeso.torch.losses import LossCall
from akeso.torch.mailbox import Delivery, Tag
from akeso.torch.task import counts_of, histogram_size

Items = list[tuple[Tag, torch.Tensor]]
_OF_CLASSES = ("cross_entropy", "nll_loss")


class Terms:
    """Follows the one cross-entropy of a step that has other losses beside it."""

    def __init__(self) -> None:
        self._targets = TargetAccount()

    def items(self, calls: Sequence[LossCall], loss: torch.Tensor) -> Items:
        """What is to be known of a step; nothing where no single number or no target of classes is at hand."""
        single = [call for call in calls if call.value is not None and call.value.dim() == 0]
        classes = [call for call in single if call.name in _OF_CLASSES and histogram_size(call)]
        others = [call.value for call in single if call.name not in _OF_CLASSES and call.value is not None]
        if len(classes) != 1 or not others or len(single) != len(calls):
            return []
        call = classes[0]
        if call.value is None or call.class_weight is not None or call.reduction != "mean":
            return []
        largest = torch.stack([value.float() for value in others]).max()
        whole = loss.detach().float().reshape(-1)[0]
        return [
            ("term_counts", counts_of(call.target, histogram_size(call))),
            ("term_values", torch.stack([call.value.float(), largest, whole])),
        ]

    def readings_of(self, plain: Delivery) -> dict[str, float]:
        """What was delivered, as readings of run scope."""
        if "term_values" not in plain:
            return {}
        own, largest, whole = plain["term_values"]
        self._targets.add({"target_counts": plain["term_counts"]})
        constant = self._targets.baseline("cross_entropy")
        if not constant or not whole > 0:
            return {}
        return {
            "class_loss_left": own / constant,
            "class_loss_share": own / whole,
            "other_loss_share": largest / whole,
        }
