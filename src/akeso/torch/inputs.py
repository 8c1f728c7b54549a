"""Readings of what goes into a model, and marks by which a sample is known again."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from akeso.torch.activations import thin
from akeso.torch.mailbox import Tag

Items = list[tuple[Tag, torch.Tensor]]
_ROWS, _COLUMNS = 32, 256
#: Values of a batch that are sorted column by column, the samples among them, and how few of those say nothing.
_SORTED, _SAMPLES, _FEW = 2048, 64, 16
#: Pictures of a batch whose layout is looked at, the side of the part that is taken from their middle, and what is left
#: out on each side, where augmentation pads.
_PICTURES, _SIDE, _RIM = 16, 64, 8
#: Entries of a target that are looked for among the values that a model is given, and how many of these there may be.
_ENTRIES, _PLACES = 6, 4096
#: Numbers of channels that are colours.
_COLOURS = (3, 4)
#: Share of the samples that may lie at least half as far off as the farthest of a feature if that is an outlier.
_RARE = 0.1


def columns_of(tag: str, tensor: torch.Tensor) -> Items:
    """A part of a batch in which outliers of single features are looked for; nothing where samples are too few."""
    rows = min(len(tensor), _SAMPLES) if tensor.dim() else 0
    if rows < _FEW:
        return []
    part = tensor[:rows].reshape(rows, -1)
    part = part[:, : _SORTED // rows]
    # Sorted on the host: a thousand numbers travel faster than a card sorts them.
    return [(f"{tag}_columns", part.float().reshape(-1)), (f"{tag}_column_rows", torch.tensor(rows))]


class Far(NamedTuple):
    """The value that lies farthest off from the median of its own feature, among those that are rare in theirs.

    ``off`` is in interquartile ranges of the feature; ``alike`` samples have exactly this value, and nothing else comes
    anywhere near it (0 where something does).
    """

    off: float
    value: float
    alike: int


def far_off(tag: str, delivery: dict[Any, Any]) -> tuple[Far | None, float | None]:
    """The farthest rare value within its own feature, and the interquartile ranges, root mean square over features."""
    if f"{tag}_columns" not in delivery:
        return None, None
    values = np.asarray(delivery[f"{tag}_columns"]).reshape(int(delivery[f"{tag}_column_rows"]), -1)
    if not np.isfinite(values).all():
        return None, None
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
    gap = np.abs(values - middle)
    farthest = gap.max(0)
    near = gap >= 0.5 * farthest
    known = (high > low) & (near.mean(0) <= _RARE)
    if (
        tag == "input"
    ):  # a pixel that is lit now and then, a count that is nearly always 0: rare, and no outlier
        known &= (values == middle).mean(0) <= 0.5
    spread = float(np.sqrt(np.mean((high - low) ** 2)))
    if not known.any():
        return None, spread
    off = np.where(known, farthest / np.where(known, high - low, 1.0), -1.0)
    column = int(off.argmax())
    value = values[gap[:, column].argmax(), column]
    same = values[near[:, column], column] == value
    return Far(float(off[column]), float(value), int(same.sum()) if same.all() else 0), spread


def input_items(tensor: torch.Tensor) -> Items:
    """Range, scale, oddities of a batch of inputs; nothing for token ids."""
    if not tensor.is_floating_point() or tensor.numel() < 2:
        return []
    part = thin(tensor.detach(), 1 << 14).float()
    finite = torch.isfinite(part)
    clean = torch.where(finite, part, torch.zeros_like(part))
    low, high = torch.aminmax(clean)
    var, mean = torch.var_mean(clean, correction=0)
    items: Items = [
        ("input_nonfinite", (~finite).float().mean()), ("input_min", low), ("input_max", high),
        ("input_var", var), ("input_mean", mean),
    ]  # fmt: skip
    if len(part) > 3:
        columns = clean.reshape(len(part), -1)
        spread = columns.std(0)
        items.append(("input_constant", (spread == 0).float().mean()))
        items.append(("input_between", spread.square().mean()))
        if part.dim() == 2 and part.shape[1] > 1:
            items.append(("input_spreads", spread[:_COLUMNS]))
            items.append(("input_levels", columns.mean(0)[:_COLUMNS]))
            items.append(("input_whole", (clean == clean.round()).float().mean()))
            items += columns_of("input", clean)
    flat = clean.reshape(-1)
    items.append(("input_part", flat[:: math.ceil(flat.numel() / 1024)]))
    return items + _layout(tensor.detach())


def _layout(pictures: torch.Tensor) -> Items:
    """Whether values of coloured pictures are more alike some places on than right beside each other.

    Colours that were left side by side, and only called channels, come back every so many places: that many as there
    are colours. Along the rows the neighbour of the same colour is as far away; across them it is as many rows down,
    since that many of the shape that is pretended make one that is real. A channel is then another part of the picture.
    """
    if pictures.dim() != 4 or pictures.shape[1] not in _COLOURS or len(pictures) < 2:
        return []
    colours = pictures.shape[1]
    for dim in (2, 3):
        size = pictures.shape[dim]
        kept = min(size - 2 * (size // _RIM), _SIDE)
        if kept < 4 * colours:
            return []
        pictures = pictures.narrow(dim, (size - kept) // 2, kept)
    part = pictures[:_PICTURES].float()
    apart = torch.stack([_apart(part, dim, lag) for dim in (2, 3) for lag in _lags(colours)])
    steps = part[..., colours:] - part[..., :-colours]
    steps = steps - steps.mean((0, 2, 3), keepdim=True)
    steps = steps / steps.square().mean((0, 2, 3), keepdim=True).sqrt()
    alike = torch.stack([(steps[:, 0] * steps[:, other]).mean() for other in range(1, colours)])
    return [("input_apart", apart), ("input_alike", alike.abs())]


def _lags(colours: int) -> tuple[int, ...]:
    return colours - 1, colours, colours + 1, 2 * colours


def _apart(part: torch.Tensor, dim: int, lag: int) -> torch.Tensor:
    """The mean squared difference of values so many places apart."""
    count = part.shape[dim] - lag
    return (part.narrow(dim, lag, count) - part.narrow(dim, 0, count)).square().mean()


def _layout_readings(delivery: dict[Any, Any]) -> dict[str, float]:
    """What :func:`_layout` has sent as readings: above 1, the colours of a picture lie side by side.

    What comes back as exactly as before, as stripes do, has its period from what it shows: pictures are less alike the
    farther apart their places are.
    """
    apart = delivery.get("input_apart")
    if apart is None or not all(map(math.isfinite, apart)) or not min(apart) > 0:
        return {}
    ratios = []
    for below, same, above, farther in (apart[:4], apart[4:]):
        ratios += [below / same, above / same, farther / same]
    # A channel without any differences, as one for transparency, is like none.
    alike = [value for value in delivery["input_alike"] if math.isfinite(value)]
    return {"input_interleaved": min(ratios), "input_channels_alike": max(alike, default=0.0)}


def readings_of(delivery: dict[Any, Any]) -> dict[str, float]:
    """The delivered raw numbers of a batch as readings of run scope."""
    if "input_var" not in delivery:
        return {}
    out = {name: delivery[name] for name in ("input_nonfinite", "input_min", "input_max", "input_mean")}
    out |= _layout_readings(delivery)
    out["input_std"] = math.sqrt(max(delivery["input_var"], 0.0))
    if "input_whole" in delivery:
        out["input_whole"] = delivery["input_whole"]
    if "input_constant" in delivery:
        out["input_constant"] = delivery["input_constant"]
        size = math.sqrt(max(delivery["input_var"], 0.0) + delivery["input_mean"] ** 2)
        if size > 0:
            out["input_sample_std"] = math.sqrt(max(delivery["input_between"], 0.0)) / size
    spreads = sorted(value for value in delivery.get("input_spreads", ()) if value > 0)
    if spreads:
        out["input_scale_spread"] = spreads[-1] / spreads[len(spreads) // 2]
    far, _ = far_off("input", delivery)
    if far is not None:
        out |= {
            "input_feature_outlier": far.off,
            "input_feature_far": far.value,
            "input_feature_alike": far.alike,
        }
    low, middle, high = map(float, np.quantile(delivery["input_part"], (0.25, 0.5, 0.75)))
    if high > low:
        out["input_outlier"] = max(out["input_max"] - middle, middle - out["input_min"]) / (high - low)
    return out


def copied_into(given: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether all that is to be predicted of a sample lies at fixed places among what the model is given of it.

    A window that ends too late holds the values that come after it; what is given one moment behind, as to a model that
    goes on from moment to moment, lacks the last one. Where the target is most of what is given, it is to be said
    again, and what is given beside it are conditions.
    """
    rows = min(len(given), _SAMPLES) if given.dim() and target.dim() else 0
    if (
        rows < _FEW
        or len(target) != len(given)
        or given.dtype != target.dtype
        or not given.is_floating_point()
    ):
        return False
    inputs, wanted = (part[:rows].detach().reshape(rows, -1) for part in (given, target))
    if not 2 * _ENTRIES <= 2 * wanted.shape[1] <= inputs.shape[1] <= _PLACES:
        return False
    columns = torch.linspace(0, wanted.shape[1] - 1, _ENTRIES, device=wanted.device).round().long()
    wanted = wanted[:, columns]
    there = (inputs[:, :, None] == wanted[:, None, :]).all(0).any(0)
    return bool((there & (wanted != wanted[:1]).any(0)).all())


def marks_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """One number per sample (of the first few) by which the same sample is recognised later."""
    if tensor.dim() == 0 or len(tensor) == 0 or tensor.is_complex():
        return None
    rows = tensor[:_ROWS].detach().reshape(min(len(tensor), _ROWS), -1)
    if rows.shape[1] > _COLUMNS:
        rows = rows[:, :: math.ceil(rows.shape[1] / _COLUMNS)]
    rows = rows.double()
    weights = torch.arange(1, rows.shape[1] + 1, device=rows.device, dtype=torch.float64).sqrt()
    return rows @ weights


class Familiar:
    """The samples that training has seen, as far as sampled steps show."""

    def __init__(self, limit: int = 20_000) -> None:
        self._known: set[float] = set()
        self._limit = limit

    def learn(self, marks: list[float]) -> None:
        """These samples were trained on."""
        if len(self._known) < self._limit:
            self._known.update(map(_rounded, marks))

    def forget(self) -> None:
        """Another training begins: what the one before has seen may be held out now, as the folds of a data set are."""
        self._known.clear()

    def count(self, marks: list[float]) -> int:
        """How many of these were."""
        return sum(_rounded(mark) in self._known for mark in marks)


def _rounded(mark: float) -> float:
    return float(f"{mark:.9g}")
