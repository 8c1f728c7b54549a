"""What remedies need to know of a run, read from its history in one place."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from akeso.detectors.steps import USUAL_RATE, usual_rate
from akeso.history import History

#: Momentum from which on a step is felt for more than twenty others.
LONG: Final = 0.95
#: The same for Adam's first beta, which some set to 0.95 on purpose.
LONG_BETA: Final = 0.97
#: Optimizers whose ordinary options are those of their class, by their lower-case names.
ORDINARY: Final = {
    "sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "nadam": "NAdam", "radam": "RAdam", "adamax": "Adamax",
    "rmsprop": "RMSprop",
}  # fmt: skip
#: A divisor of steps that is no safeguard any more: Adam's is 1e-8, some like 1e-3.
LARGE_EPS: Final = 1e-2
#: Weight decay that drowns a gradient: twenty times what is usual where it is part of it (Adam, SGD), a hundred times
#: where it is taken off the weights beside it.
LARGE_DECAY: Final = {"adamw": 1.0, "nadamw": 1.0, "sgdw": 1.0}
LARGE_DECAY_ELSEWHERE: Final = 1e-2
#: A loss scale that leaves next to nothing of gradients which are clipped before it is taken off.
_LARGE_SCALE: Final = 100
SQUASHING: Final = frozenset(
    {"sigmoid", "tanh", "hardsigmoid", "hardtanh", "softsign", "softmax", "logsigmoid"}
)
GROWING: Final = frozenset({"exp", "square", "cube", "fourth", "exponential"})
RECTIFYING: Final = frozenset({"relu", "relu6", "clamp", "clamp_min"})
_RECURRENT: Final = ("RNN", "LSTM", "GRU")


@dataclass(frozen=True, slots=True)
class Chart:
    """A run at a glance; every field has a sane value when nothing is known."""

    task: str
    classes: int
    loss: str
    loss_by_hand: bool  # written out as arithmetic
    output: str
    output_of: str  # the function right before that one, where there is one
    target_kind: str
    activation: str  # the most frequent hidden one, lower case; "" when unknown
    optimizer: str
    lr: float
    peak_rate: float  # the highest rate seen, whatever a schedule did
    momentum: float
    odd_options: bool  # the optimizer's averages or its divisor are set as hardly anybody sets them
    weight_decay: float
    batch_size: int
    dataset_size: int
    depth: int
    recurrent: bool
    attention: bool
    normalised: bool
    weights_off: bool  # some initial weights are far too small, far too large or all alike
    weights_large: bool
    input_scale: float
    odd_inputs: bool  # they vary hardly or hugely, lie far off zero, or some reach far beyond the others
    target_scale: float
    merely_missing: bool  # some inputs or targets are not finite, and the others are of an ordinary size
    steps: int
    planned: int
    clipped: float  # the norm or value the program clips to, 0 when it does not
    clips_scaled: bool  # it clips gradients while they are multiplied by a large loss scale
    clip_takes: float  # by how much the usual gradient is shortened by that; 1 when it is not
    rate_falls: bool  # a schedule brings the rate down to next to nothing long before the end
    rate_rises: bool  # a schedule brings it far above where it starts
    rate_creeps: (
        bool  # one raises it so slowly that it will be far below the usual rate when the training ends
    )
    wild_targets: bool  # a few targets lie an order of magnitude beyond what most batches hold

    @property
    def large_decay(self) -> bool:
        """Whether the weight decay is beyond anything that is usual with this optimizer."""
        return self.weight_decay > LARGE_DECAY.get(self.optimizer, LARGE_DECAY_ELSEWHERE)

    @property
    def usual_rate(self) -> float:
        """The rate at which this optimizer usually works, with the room that momentum gives."""
        return usual_rate(self.optimizer, self.momentum)


def chart(history: History) -> Chart:
    """Read the chart of a run."""
    facts = history.facts
    optimizer = _first(facts.get("optimizers"))
    kinds = [str(kind).lower() for kind in dict(facts.get("activations") or {}).values()]
    layers = [layer.kind for layer in history.layers]
    off, large = _initial_weights(history)
    aim = dict(facts.get("aim") or {})
    return Chart(
        task=str(aim.get("task") or facts.get("task", "unknown")),
        classes=int(aim.get("classes") or facts.get("classes") or 1),
        loss=str(facts.get("loss", "unknown")),
        loss_by_hand=bool(dict(facts.get("loss_args") or {}).get("by_hand")),
        output=_plain(facts.get("output_activation", "unknown")),
        output_of=_plain(facts.get("output_activation_of", "")),
        target_kind=str(facts.get("target_kind", "unknown")),
        activation=Counter(kinds).most_common(1)[0][0] if kinds else "",
        optimizer=str(optimizer.get("name", "")).lower(),
        lr=_number(optimizer.get("lr"), _start(history, "lr", "0")),
        peak_rate=_peak_rate(history, _number(optimizer.get("lr"), 0.0)),
        momentum=_number(optimizer.get("momentum"), 0.0),
        odd_options=_odd(optimizer),
        weight_decay=_number(optimizer.get("weight_decay"), 0.0),
        batch_size=int(_start(history, "batch_size", "") or 0),
        dataset_size=int(_number(facts.get("dataset_size"), 0.0)),
        depth=sum(1 for layer in history.layers if any(len(p.shape) > 1 for p in layer.parameters)),
        recurrent=any(name in kind for kind in layers for name in _RECURRENT),
        attention=any("Attention" in kind or "Transformer" in kind for kind in layers),
        normalised=any("Norm" in kind for kind in layers),
        weights_off=off,
        weights_large=large,
        input_scale=_scale(history, "input"),
        odd_inputs=_odd_inputs(history),
        target_scale=_scale(history, "target"),
        merely_missing=_merely_missing(history),
        steps=history.steps,
        planned=history.planned_steps or max(history.steps, 1),
        clipped=_clip(history),
        clips_scaled=_clips_scaled(history),
        clip_takes=_clip_takes(history),
        rate_falls=_rate_falls(history),
        rate_rises=_rate_rises(history),
        rate_creeps=_rate_creeps(history, USUAL_RATE.get(str(optimizer.get("name", "")).lower(), 1e-3)),
        wild_targets=_wild(history),
    )


def _plain(name: Any) -> str:
    return str(name).lower().replace("_", "")


def _first(optimizers: Any) -> dict[str, Any]:
    return dict(optimizers[0]) if isinstance(optimizers, list | tuple) and optimizers else {}


def _number(value: Any, otherwise: float) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return otherwise


def _start(history: History, signal: str, scope: str) -> float:
    values = history.series(signal, scope).finite().values
    return float(values[0]) if len(values) else 0.0


def _scale(history: History, what: str) -> float:
    """How far values reach from zero in the first batches; infinite where some are not finite."""
    return math.inf if _missing(history, what) else _reach(history, what)


def _missing(history: History, what: str) -> bool:
    missing = history.series(f"{what}_nonfinite").values
    return len(missing) > 0 and float(np.nanmax(missing)) > 0


def _reach(history: History, what: str) -> float:
    """How far values reach from zero in the first batches without missing ones."""
    reach = [history.series(f"{what}_{end}").finite().values[:8] for end in ("min", "max")]
    peaks = [float(np.max(np.abs(values))) for values in reach if len(values)]
    return max(peaks) if peaks else 1.0


def _merely_missing(history: History) -> bool:
    spreads = history.series("input_std").finite().values
    ordinary = not len(spreads) or 0.05 < float(np.median(spreads)) < 30
    missing = _missing(history, "input") or _missing(history, "target")
    return missing and ordinary and all(0.05 < _reach(history, what) <= 30 for what in ("input", "target"))


def _odd_inputs(history: History) -> bool:
    reach = _scale(history, "input")
    spreads = history.series("input_std").finite().values
    if math.isinf(reach) or not len(spreads):
        return math.isinf(reach)
    spread, means = float(np.median(spreads)), history.series("input_mean").finite().values
    centre = abs(float(np.median(means))) if len(means) else 0.0
    return not 0.05 < spread < 30 or centre > 5 * spread or reach > 100 * spread


def _clip(history: History) -> float:
    values = history.series("clip_limit").finite().values
    return float(values[-1]) if len(values) else 0.0


def _clips_scaled(history: History) -> bool:
    """Whether what steps are made of is the limit divided by the loss scale, as if that were part of the gradient."""
    limit, scale, norm = (
        history.series(name).finite().values for name in ("clip_limit", "loss_scale", "grad_norm")
    )
    if not (len(limit) and len(scale) and len(norm)):
        return False
    ratio = float(np.median(norm)) * float(np.median(scale)) / max(float(np.median(limit)), 1e-30)
    return float(np.median(scale)) > _LARGE_SCALE and 0.5 < ratio < 2.0


def _clip_takes(history: History) -> float:
    limit, norms = _clip(history), history.series("grad_norm_raw").finite().values
    return max(1.0, float(np.median(norms)) / limit) if limit > 0 and len(norms) else 1.0


def _rate_falls(history: History) -> bool:
    rates = history.series("lr", "0").finite()
    planned = history.planned_steps or history.steps
    if not len(rates.values):
        return False
    low = np.flatnonzero(rates.values < 0.1 * np.maximum.accumulate(rates.values))
    # A schedule may end at nothing, as many do: what counts is how much of the training is left by then.
    return bool(len(low)) and float(rates.steps[low[0]]) < 0.5 * max(planned, 1)


def _rate_rises(history: History) -> bool:
    rates = history.series("lr", "0").finite().values
    return bool(len(rates)) and float(np.max(rates)) > 3 * float(rates[0]) > 0


def _rate_creeps(history: History, usual: float) -> bool:
    rates = history.series("lr", "0").finite()
    if len(rates.values) < 3 or not _rate_rises(history):
        return False
    planned = max(history.planned_steps or history.steps, 1)
    pace = (float(rates.values[-1]) - float(rates.values[0])) / max(
        1.0, float(rates.steps[-1] - rates.steps[0])
    )
    return float(rates.values[-1]) + pace * max(0.0, planned - float(rates.steps[-1])) < usual / 10


def _peak_rate(history: History, set_to: float) -> float:
    rates = history.series("lr", "0").finite().values
    return max(set_to, float(np.max(rates)) if len(rates) else 0.0)


def _odd(optimizer: dict[str, Any]) -> bool:
    """Whether steps are averaged over dozens of others, or divided by a constant instead of their size.

    Only of optimizers whose ordinary options are known: where they cannot be set right, rates have to do.
    """
    if str(optimizer.get("name", "")).lower() not in ORDINARY:
        return False
    betas = optimizer.get("betas")
    first = _number(betas[0], 0.9) if isinstance(betas, list | tuple) and betas else 0.9
    return (
        _number(optimizer.get("momentum"), 0.0) > LONG
        or first > LONG_BETA
        or _number(optimizer.get("eps"), 0.0) > LARGE_EPS
    )


#: Interquartile ranges from the median at which a target is one of the wild ones in most batches.
_OFF = 100.0


def _wild(history: History) -> bool:
    reach = [np.abs(history.series(f"target_{end}").finite().values) for end in ("min", "max")]
    count = min(map(len, reach))
    if count < 4:
        return False
    peaks = np.maximum(reach[0][:count], reach[1][:count])
    usual = float(np.median(peaks))
    # Where every batch has some, no batch stands out: these lie off from the others of their own batch.
    off = history.series("target_outlier").finite().values
    everywhere = len(off) >= 4 and float(np.median(off)) > _OFF
    return everywhere or (usual > 0 and float(np.max(peaks)) > 10 * usual)


def _initial_weights(history: History) -> tuple[bool, bool]:
    """Whether weight matrices started out of range for their width, and whether they were too large."""
    off = large = False
    for layer in history.layers:
        if layer.role in ("embedding", "norm") or "Embedding" in layer.kind or "Norm" in layer.kind:
            continue
        for parameter in layer.parameters:
            if len(parameter.shape) < 2 or "bias" in parameter.name:
                continue
            inputs = int(np.prod(parameter.shape[1:]))
            spread = parameter.init_std * math.sqrt(max(1, inputs))
            size = math.hypot(parameter.init_std, parameter.init_mean) * math.sqrt(max(1, inputs))
            # What is multiplied with itself from step to step grows when it is more than one.
            most = 1.5 if "weight_hh" in parameter.name else 3.0
            if not math.isfinite(size) or size > most:
                off = large = True
            elif spread < 0.25:
                off = True
    return off, large
