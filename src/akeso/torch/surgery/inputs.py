"""Cleaning and scaling of inputs, fitted on training data and carried by the model itself."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from akeso.errors import Refused
from akeso.torch.surgery.attachment import attach_back, attach_front

_SAMPLE = 20_000
#: Values further from the median than this many robust deviations are pulled in.
_FENCE = 12.0
_BOUND = 10.0
#: A value that stands for a missing one is met so often at least, in this share of the cells at most, and lies so many
#: times as far out as all others reach; further where it is that of a single column, with so many kinds of others.
_REPEATED, _FEW, _APART, _FAR_APART, _KINDS = 3, 0.3, 3.0, 10.0, 8
#: Where most of the columns that share it are so, it has to lie so many times as far out in the rest of them.
_BEYOND = 1.0


class InputScaler(nn.Module):
    """Imputes what is missing or coded as such, pulls in outliers, shifts and scales; all numbers from training data.

    Tables are scaled by column, images by channel, sequences by feature. The numbers are buffers, so that the
    model takes raw inputs for ever after, also once saved and loaded.
    """

    centre: Tensor
    scale: Tensor
    low: Tensor
    high: Tensor
    fill: Tensor
    codes: Tensor
    bound: Tensor

    def __init__(self, shape: tuple[int, ...], axis: int) -> None:
        super().__init__()
        self.axis = axis
        for name, value in (
            ("centre", 0.0),
            ("scale", 1.0),
            ("low", -torch.inf),
            ("high", torch.inf),
            ("fill", 0.0),
        ):
            self.register_buffer(name, torch.full(shape, value))
        # Values that stand for missing ones: one above and one below all others.
        self.register_buffer("bound", torch.tensor(_BOUND))
        self.register_buffer("codes", torch.full((2, *shape), torch.nan))

    def forward(self, value: Tensor) -> Tensor:
        """The cleaned and scaled input."""
        value = value.to(self.centre.dtype) if not value.is_floating_point() else value
        centre, scale = self._spread(self.centre, value), self._spread(self.scale, value)
        low, high, fill = (self._spread(part, value) for part in (self.low, self.high, self.fill))
        missing = ~torch.isfinite(value)
        for code in self.codes:
            missing = missing | (value == self._spread(code, value))
        value = torch.where(missing, fill, value)
        value = torch.minimum(torch.maximum(value, low), high)
        bound = self.bound.to(value.dtype)
        return ((value - centre) / scale).clamp(-bound, bound)

    def leave_as_it_is(self) -> None:
        """Impute what is missing, and nothing else."""
        for part, value in (
            (self.centre, 0.0),
            (self.scale, 1.0),
            (self.low, -torch.inf),
            (self.high, torch.inf),
        ):
            part.fill_(value)
        self.bound.fill_(torch.inf)

    def _spread(self, part: Tensor, value: Tensor) -> Tensor:
        part = part.to(dtype=value.dtype)
        if part.dim() == 0:
            return part
        shape = [1] * value.dim()
        shape[self.axis] = part.shape[0]
        return part.reshape(shape)


def fit_scaler(inputs: Tensor, *, only_clean: bool = False) -> tuple[InputScaler, list[str]]:
    """A scaler for these training inputs, and a list of what was found wrong with them.

    With ``only_clean`` what is missing is imputed and all the rest stays as it is.
    """
    if not inputs.is_floating_point() and inputs.dtype != torch.uint8:
        raise Refused(f"inputs of type {str(inputs.dtype).removeprefix('torch.')} are names, not quantities")
    if inputs.dim() < 2:
        raise Refused("inputs have no features")
    axis = 1 if inputs.dim() in (2, 4, 5) else -1
    stride = max(1, len(inputs) // _SAMPLE)
    values = inputs[::stride].detach().to("cpu", torch.float64)
    columns = values.movedim(axis, 0).reshape(values.shape[axis], -1)
    stride = max(1, columns.shape[1] // _SAMPLE)
    columns = columns[:, ::stride]
    codes = _codes(columns)
    coded = (columns == codes[0][:, None]) | (columns == codes[1][:, None])
    columns = torch.where(coded, torch.nan, columns)
    finite = torch.isfinite(columns)
    blank = torch.where(finite, columns, torch.nan)
    middle = torch.nan_to_num(blank.nanmedian(dim=1).values)
    spread = torch.nan_to_num((blank - middle[:, None]).abs().nanmedian(dim=1).values) * 1.4826
    # A column that is mostly one value (counts, borders of images) has no robust spread to judge by.
    judged = spread > 0
    fence = torch.where(judged, _FENCE * spread, torch.inf)
    low, high = middle - fence, middle + fence
    far = finite & ((columns < low[:, None]) | (columns > high[:, None]))
    # Outliers are rare by definition: where many lie far out, the column is heavy-tailed and stays.
    heavy = far.float().mean(dim=1) > 0.15
    low, high = torch.where(heavy, -torch.inf, low), torch.where(heavy, torch.inf, high)
    kept = torch.where(far & ~heavy[:, None], torch.nan, blank)
    centre = torch.nan_to_num(kept.nanmean(dim=1))
    variance = torch.nan_to_num(((kept - centre[:, None]) ** 2).nanmean(dim=1))
    deviation = variance.sqrt()
    constant = deviation <= 1e-9 * centre.abs().clamp_min(1e-30)
    scale = torch.where(constant, 1.0, deviation)
    centre, scale = _pooled(centre, scale, constant, kept)
    scaler = InputScaler(tuple(centre.shape), axis)
    # Float64 buffers would turn the model's arithmetic into float64; the input's own type is kept.
    dtype = inputs.dtype if inputs.is_floating_point() else torch.get_default_dtype()
    for name, part in (("centre", centre), ("scale", scale), ("low", low), ("high", high), ("fill", middle),
                       ("codes", codes)):  # fmt: skip
        setattr(scaler, name, part.to(dtype=dtype))
    if only_clean:
        scaler.leave_as_it_is()
    known = sorted(set(codes[~codes.isnan()].tolist()))
    notes = [f"{code:g} taken as missing" for code in known[:8]]
    notes += [f"{len(known) - 8} more values taken as missing"] if len(known) > 8 else []
    return scaler.to(inputs.device), notes + _listed(columns, finite, far & ~heavy[:, None], constant)


def _codes(columns: Tensor) -> Tensor:
    """The values that stand for missing ones, such as -999: one above and one below all others of a column, or NaN.

    The largest or smallest value of a column is one when only few of its cells hold exactly it, no other value comes
    anywhere near, and several cells hold it. One that all columns share is known by less than one that was scaled with
    its column: a rare flag, or a pixel that is lit now and then, is no code.
    """
    known = torch.where(torch.isfinite(columns), columns, torch.nan)
    found = []
    for sign in (1.0, -1.0):
        signed = torch.where(torch.isnan(known), -torch.inf, sign * known)
        code = signed.amax(dim=1)
        held = (signed == code[:, None]) & torch.isfinite(code)[:, None]
        rest = torch.where(held, torch.nan, sign * known)
        high = torch.nan_to_num(rest, nan=-torch.inf).amax(dim=1)
        low = torch.nan_to_num(rest, nan=torch.inf).amin(dim=1)
        reach = (high - low).clamp_min(0.1 * high.abs()).clamp_min(1e-12)
        gap = torch.where(torch.isfinite(high), (code - high) / reach, 0.0)
        few, count = held.float().mean(dim=1) < _FEW, held.sum(dim=1)
        own = few & (count >= _REPEATED) & (gap > _FAR_APART)
        for column in own.nonzero().flatten().tolist():
            own[column] = _kinds(rest[column]) > _KINDS
        top = code == code.max()
        shared = (
            int(count[top].sum()) >= _REPEATED
            and bool(gap[top].median() > _APART)
            and bool((gap[top] > _BEYOND).all())
            and float(held[top].float().mean()) < _FEW
            and _kinds(rest[top]) > 1
        )
        found.append(torch.where(own | (top & shared), sign * code, torch.nan))
    return torch.stack(found)


def _kinds(values: Tensor) -> int:
    return len(values[torch.isfinite(values)].unique())


def _pooled(centre: Tensor, scale: Tensor, constant: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """Many columns of one kind (pixels, word counts) share centre and scale, lest rare ones swell."""
    peaks = torch.nan_to_num(kept.abs(), nan=0.0).amax(dim=1)
    usual = peaks[~constant].median() if bool((~constant).any()) else torch.tensor(1.0)
    alike = (peaks > usual / 30) & (peaks < usual * 30)
    if len(centre) < 32 or float(alike.float().mean()) < 0.3:
        return centre, scale
    alike |= constant & (peaks < usual * 30)
    values = kept[alike]
    middle = torch.nan_to_num(values.nanmean())
    spread = torch.nan_to_num(((values - middle) ** 2).nanmean()).sqrt().clamp_min(1e-30)
    return torch.where(alike, middle, centre), torch.where(alike, spread, scale)


def _listed(columns: Tensor, finite: Tensor, far: Tensor, constant: Tensor) -> list[str]:
    notes = []
    for what, mask in (("not finite", ~finite), ("far out", far)):
        counts = mask.sum(dim=1)
        hit = torch.nonzero(counts).flatten().tolist()
        if hit:
            shown = ", ".join(f"{column} ({int(counts[column])})" for column in hit[:8])
            more = f" and {len(hit) - 8} more" if len(hit) > 8 else ""
            notes.append(f"{int(counts.sum())} values {what} in features {shown}{more}")
    if bool(constant.any()):
        notes.append(f"{int(constant.sum())} of {len(constant)} features are constant")
    low, high = (
        columns[finite].min() if bool(finite.any()) else 0,
        columns[finite].max() if bool(finite.any()) else 0,
    )
    notes.append(f"values from {float(low):.4g} to {float(high):.4g}")
    return notes


def scale_inputs(model: nn.Module, inputs: Tensor) -> list[str]:
    """Let a model clean and scale its inputs by these training inputs; say what was wrong with them."""
    if hasattr(model, "akeso_inputs"):
        raise Refused("the model scales its inputs already")
    scaler, notes = fit_scaler(inputs)
    attach_front(model, "akeso_inputs", scaler)
    return notes


class OutputUnits(nn.Module):
    """Turns standardised predictions into the units of the targets."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    def forward(self, value: Tensor) -> Tensor:
        """The prediction in original units."""
        return value * self.scale.to(value) + self.mean.to(value)


def standardise_targets(model: nn.Module, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Let a model predict in the units of these training targets from a standardised output."""
    if not targets.is_floating_point():
        raise Refused("targets are classes, not values")
    if hasattr(model, "akeso_units"):
        raise Refused("the model's outputs are standardised already")
    columns = (
        targets.detach().reshape(len(targets), -1) if targets.dim() < 3 else targets.detach().reshape(-1, 1)
    )
    finite = torch.where(torch.isfinite(columns), columns, torch.nan).double()
    mean = torch.nan_to_num(finite.nanmean(dim=0))
    scale = torch.nan_to_num(((finite - mean) ** 2).nanmean(dim=0)).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    if len(mean) == 1:
        mean, scale = mean.squeeze(0), scale.squeeze(0)
    mean, scale = mean.to(targets.dtype), scale.to(targets.dtype)
    attach_back(model, "akeso_units", OutputUnits(mean, scale))
    return mean, scale
