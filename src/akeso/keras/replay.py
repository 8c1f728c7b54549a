"""A captured pass, told in torch's terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from akeso.keras.mirrors import Mirrors, as_tensor
from akeso.torch.events import Called, Compared, Entered, Left, Seen
from akeso.torch.keras.losses import call_of


def told(events: Sequence[tuple[Any, ...]], arrays: Sequence[Any], mirrors: Mirrors) -> list[Seen]:
    """The events of a pass with mirrors for layers and torch's tensors for ``arrays``."""
    tensors = [as_tensor(array) for array in arrays]

    def tensor(number: int) -> torch.Tensor | None:
        return tensors[number] if number >= 0 else None

    out: list[Seen] = []
    stack: list[torch.Tensor | None] = []
    for event in events:
        if event[0] == "enter":
            stack.append(tensor(event[2]))
            out.append(Entered(mirrors.known(event[1]), stack[-1]))
        elif event[0] == "leave":
            out.append(Left(mirrors.known(event[1]), stack.pop(), tensor(event[2])))
        elif event[0] == "function":
            result = tensor(event[2])
            if result is not None:
                out.append(Called(event[1], result))
        else:
            _, loss, wanted, answer, value, weighted, activation, before = event
            target, prediction = tensor(wanted), tensor(answer)
            if target is None or prediction is None:
                continue
            if target.dim() and prediction.dim() and len(target) != len(prediction):
                rows = min(len(target), len(prediction))  # of one of them there was too much
                target, prediction = target[:rows], prediction[:rows]
            if prediction.dtype is torch.float16:
                prediction = prediction.float()  # as losses take it
            call = call_of(loss, target, prediction, tensor(value), weighted=weighted)
            if call is not None:
                out.append(Compared(replace(call, activation=activation, before=before)))
    return out
