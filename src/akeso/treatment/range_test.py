"""A learning-rate range test: raise the rate step by step on a copy, take the rate before trouble."""

from __future__ import annotations

import copy
import dataclasses
import math

import numpy as np
import torch

from akeso.errors import Refused
from akeso.torch.surgery.optimizers import clip, successor
from akeso.treatment.assembly import Assembly, moved


def find_rate(built: Assembly, place: torch.device, low: float, high: float, steps: int, seed: int) -> float:
    """The learning rate at which the loss falls fastest, well before it rises.

    The test runs on a copy of the model with a fresh optimizer of the same kind; nothing of it stays.
    """
    if not 0 < low < high or steps < 10:
        raise Refused(
            f"a range test needs 0 < low < high and at least 10 steps, but got {low}, {high}, {steps}"
        )
    twin = dataclasses.replace(built, model=copy.deepcopy(built.model))
    memo = {id(old): new for old, new in zip(built.model.parameters(), twin.model.parameters(), strict=True)}
    optimizer = successor(built.optimizer, type(built.optimizer).__name__, low)
    for group in optimizer.param_groups:
        group["params"] = [memo[id(p)] for p in group["params"] if id(p) in memo]
    optimizer.state.clear()
    rates = np.geomspace(low, high, steps)
    losses: list[float] = []
    generator = torch.Generator().manual_seed(seed + 7919)
    batches = built.train.epoch(built.batch_size, generator)
    twin.model.train()
    for rate in rates:
        try:
            inputs, target = next(batches)
        except StopIteration:
            batches = built.train.epoch(built.batch_size, generator)
            inputs, target = next(batches)
        optimizer.zero_grad()
        loss = twin.loss(twin.model(*twin.prepared(inputs, place)), moved((target,), place)[0])
        loss.backward()
        if built.clip is not None:
            clip(twin.model.parameters(), *built.clip)
        for group in optimizer.param_groups:
            group["lr"] = float(rate)
        optimizer.step()
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]) or losses[-1] > 4 * max(losses[0], 1e-9) + 1:
            break
    return chosen_rate(rates, losses)


def chosen_rate(rates: np.ndarray[tuple[int], np.dtype[np.float64]], losses: list[float]) -> float:
    """A third of the rate at which the smoothed loss is lowest: past it steps begin to undo each other."""
    finite = [value for value in losses if math.isfinite(value)]
    if len(finite) < 5:
        return float(rates[0])
    smooth, mean = [], 0.0
    for index, value in enumerate(finite):
        mean = 0.8 * mean + 0.2 * value
        smooth.append(mean / (1 - 0.8 ** (index + 1)))
    return float(rates[int(np.argmin(smooth))] / 3)
