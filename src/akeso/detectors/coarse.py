"""Weights of 16 bits, whose steps may be less than the distance from one number to the next."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors.standing import Standing
from akeso.detectors.steps import last_rate, optimizer_name
from akeso.diagnosis import Symptom
from akeso.history import History

#: How much of what the gradients ask is lost where hardly anything of it gets through.
_LOST: Final = 0.9
#: The share of a constant prediction's loss that is left where it does harm, and of the run that has to be over.
_LEFT: Final = 0.8
_OVER: Final = 0.5
#: Steps that were looked at.
_LOOKS: Final = 4
#: Optimizers that add to the very weights they are given. Others may keep a finer copy, to which every step counts.
_PLAIN: Final = frozenset(
    {"sgd", "asgd", "adam", "adamw", "nadam", "radam", "adamax", "rmsprop", "adagrad", "adadelta", "rprop"}
)


def rounded_away(history: History, stand: Standing, problem: str) -> Iterator[Symptom]:
    """Steps that leave nearly all weights of 16 bits exactly as they are, where nothing is learnt.

    A weight of bfloat16 has some 250 numbers between it and twice its size: what a step adds is lost unless it is a
    five-hundredth of the weight. Where the loss comes down all the same, the large gradients get through, or the sum
    of many small weights.
    """
    if optimizer_name(history).lower() not in _PLAIN or stand.diverged or not stand.share >= _OVER:
        return
    if not (math.isfinite(stand.remaining) and stand.suffers(_LEFT) and last_rate(history) > 0):
        return
    lost, names = [], []
    for weight in network.weights(history):
        seen = history.series("update_lost", weight.name).finite()
        if len(seen) < _LOOKS:
            continue
        # Sampling is uneven: each reading stands for the steps up to the next one.
        spans = np.diff(np.append(seen.steps, network.extent(history)[1] + 1))
        lost.append((math.prod(weight.shape), float(np.average(seen.values, weights=np.maximum(spans, 1)))))
        names.append(weight.name)
    if not lost:
        return
    sizes, shares = np.array(lost).T
    share = float(np.average(shares, weights=sizes))
    if share < _LOST:
        return
    yield Symptom(
        problem,
        "error",
        0.85,
        network.extent(history)[0],
        names[0].rpartition(".")[0],
        {
            "reason": "rounded-away",
            "parameters": names[:8],
            "count": len(names),
            "lost_to_rounding": curves.rounded(share),
            **stand.evidence(),
        },
        f"The weights have 16 bits, and {share:.0%} of what the gradients ask of them is rounded away: a step is less "
        "than the distance from one number to the next.",
        (
            "Keep the weights in float32 and compute in 16 bits with `torch.autocast`: then every step counts.",
            "Where they have to stay as they are: a higher learning rate, or an optimizer that keeps a copy of the "
            "weights in float32.",
        ),
    )
