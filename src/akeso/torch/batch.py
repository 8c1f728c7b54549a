"""Readings of one training batch as the loss sees it: task, outputs, targets, accuracy, input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from akeso.torch import inputs
from akeso.torch.accounts import LatestCounts, TargetAccount
from akeso.torch.dependence import Dependences
from akeso.torch.losses import SYMMETRIC, LossCall, from_graph
from akeso.torch.mailbox import Delivery, Tag
from akeso.torch.naming import DROPOUTS, NORMS, Names, dropout_of, parameters_of, unwrap
from akeso.torch.passes import Passes, place_of
from akeso.torch.record import Record
from akeso.torch.task import (
    FEW,
    batch_items,
    facts_of,
    histogram_size,
    power_of,
    terms_of,
    views_items,
)
from akeso.torch.terms import Terms
from akeso.torch.ways import farthest_weight

Items = list[tuple[Tag, torch.Tensor]]
#: Batches from which the facts about the task are taken; they need values, so the device is waited for.
_LOOKS = 4
#: Losses that are given logarithms of probabilities, and what of those is above zero by rounding.
_OF_LOGARITHMS, _ZERO = ("kl_div", "nll_loss"), 1e-3
#: Activations that give nothing beyond 1, whatever targets ask for.
_BOUNDED = ("sigmoid", "tanh", "softmax", "hardsigmoid", "hardtanh")
#: The momentum that torch gives running averages, and batches that one which was loaded has seen more than.
_USUAL_MOMENTUM, _JUST_BEGUN = 0.1, 16
#: Deviation of the targets in validation over that in training from which they are in other units.
_UNITS = 2.0
#: How many times the mean of what a loss function gave is no mean of it any more.
_A_SUM = 1.5
#: Share of the whole that makes a loss a trace of it, and that another one must have then.
_TRACE, _MOST = 0.01, 0.5


def _never_averages(module: nn.Module) -> bool:
    """Whether a norm keeps the averages it was made with, and none were loaded into it."""
    if not isinstance(module, NORMS[:1]) or module.momentum != 0 or not module.training:
        return False
    return module.running_mean is not None and not bool(module.running_mean.any())


def _slow_average(module: nn.Module) -> float | None:
    """The momentum of a norm that averages over more than the usual ten batches, and has only just begun to."""
    if not isinstance(module, NORMS[:1]) or not module.momentum or module.num_batches_tracked is None:
        return None
    slow = module.training and module.momentum < _USUAL_MOMENTUM
    return float(module.momentum) if slow and int(module.num_batches_tracked) <= _JUST_BEGUN else None


class BatchReader:
    """Turns what a sampled forward pass has shown into readings and facts."""

    def __init__(self, record: Record, names: Names) -> None:
        self._record, self._names = record, names
        self._targets = TargetAccount()
        self._side_by_side = Terms()
        self._answers, self._labels = LatestCounts(), LatestCounts()
        self._looks = self._measured = self._compared = 0
        self._looks_said: set[str] = set()
        self._flat_looks = 0
        self.target_kind = ""
        self._loss_name = ""
        self._main_name: str | None = (
            None  # of several losses the one that counts, and its place from the last one
        )
        self._main_place = -1
        self._smoothing = 0.0
        self.ignored = -100  # the target that the loss leaves out
        self._weights: list[float] = []
        self._leaks: list[bool] = []
        self.kind = ("", "")
        """The loss function that is trained on, and how it is brought to one number."""
        self._scale = math.inf  # the smallest factor between the loss function and what backward ran from
        self._added_up: bool | None = (
            None  # whether the script adds up what the loss function gave for each value
        )
        self._terms: list[int] = []  # fewest and most calls of a loss function in one step
        self._models = 0
        self._sensitive: list[str] = []
        self.fed: tuple[type[Any], torch.Size] | None = None
        """What kind of model was trained last, and on what shape of samples."""

    def read(self, passes: Passes, loss: torch.Tensor, step: int) -> tuple[Items, dict[str, float]]:
        """Items to send and readings known already."""
        items: Items = []
        facts: dict[str, float] = {}
        given = passes.model_input
        if given is not None and passes.models:
            self.fed = (type(unwrap(passes.models[0])), given.shape[1:])
        if given is not None:
            items += inputs.input_items(given)
            marks = inputs.marks_of(given)
            if marks is not None:
                items.append(("marks", marks))
            if given.dim():
                facts["batch_size"] = float(len(given))
            self._record.fact("input_kind", "values" if given.is_floating_point() else "tokens")
            self._record.fact("input_shape", list(given.shape))
        call = self._main(passes.calls, loss) if passes.calls else from_graph(loss)
        self._modes(passes, step)
        self._spread(passes, step)
        self._reshaped(passes, step)
        self._inside(passes, given, step)
        if "severed" not in self._looks_said and passes.severed.within(loss):
            self._looks_said.add("severed")
            self._record.event(step, "severed")
        self._bent(passes.severed.bent)
        self._depends(passes, step)
        self._measure(loss)
        if call is None:
            if self._looks == 0 and "loss" not in self._record.history.facts:
                self._record.fact("loss", "custom" if passes.aligned is None else "ctc_loss")
            if passes.aligned is not None:
                items += passes.aligned.items()
            if passes.signs is not None and passes.signs[1].numel():
                self._record.fact("pair_loss", passes.signs[0])
                low, high = torch.aminmax(passes.signs[1].float())
                items += [("target_min", low), ("target_max", high)]
            if passes.margin is not None and loss.numel() == 1:
                self._record.fact("triplets", True)
                facts["_margin"], value = passes.margin
                items += [
                    ("call_value", value.float()),
                    ("backward_value", loss.detach().float().reshape(())),
                ]
            items += views_items(passes.views)
            if passes.directions_alone:
                self._record.fact("compared_by", "direction")
            return items, facts
        terms = len(passes.calls)
        if terms > 1 and self._compared < _LOOKS:
            self._compared += 1
            self._misfits(passes.calls)
        if terms > 1:
            items += self._side_by_side.items(passes.calls, loss)
        if (
            self._looks < _LOOKS
            and passes.recurrence is not None
            and passes.recurrence.astray(given, call.target)
        ):
            self._record.fact("recurrence_over_samples", passes.recurrence.name)
        self._learn(call, given)
        items += batch_items(call, target_kind=self.target_kind, histogram=histogram_size(call))
        facts["_rows"] = float(len(call.target) if call.target.dim() else 1)
        facts["_terms"] = float(terms_of(call))
        facts.setdefault("batch_size", facts["_rows"])
        if terms <= 1 and call.value is not None and call.value.dim() == 0:
            items += [
                ("call_value", call.value.float()),
                ("backward_value", loss.detach().float().reshape(-1)[0]),
            ]
        elif (
            terms <= 1 and call.value is not None and call.value.is_floating_point() and call.name != "kl_div"
        ):
            items += [
                ("mean_of_parts", call.value.float().mean()),
                ("backward_value", loss.detach().float().reshape(-1)[0]),
            ]
        if call.reduction == "sum":
            facts["_sum"] = 1.0
        elif call.reduction == "batchmean":
            facts["_per_row"] = 1.0
        self._count(terms)
        return items, facts

    def _main(self, calls: Sequence[LossCall], loss: torch.Tensor) -> LossCall:
        """The loss that a step is judged by: of several the last one, unless it is a trace beside another one.

        What keeps a student near its teacher, say, is next to nothing at first, and a constant prediction of it too.
        """
        if len(calls) > 1 and self._main_name is None:
            values = [
                abs(float(call.value)) if call.value is not None and call.value.dim() == 0 else math.nan
                for call in calls
            ]
            whole = abs(float(loss.detach().reshape(-1)[0]))
            most = max(range(len(calls)), key=lambda at: values[at] if math.isfinite(values[at]) else -1.0)
            trace = values[-1] <= _TRACE * whole and values[most] >= _MOST * whole
            self._main_name = calls[most].name if trace else ""
            self._main_place = most - len(calls)
        if not self._main_name:
            return calls[-1]
        if len(calls) >= -self._main_place and calls[self._main_place].name == self._main_name:
            return calls[self._main_place]
        return next((call for call in reversed(calls) if call.name == self._main_name), calls[-1])

    def _misfits(self, calls: Sequence[LossCall]) -> None:
        """What can be told of each of several losses from its values alone, whatever the others are."""
        said = {place_of(call.prediction) for call in calls} - {0}
        if any(place_of(call.target) in said for call in calls):
            self._record.fact("terms_between_parts", True)
        for call in calls:
            if not call.prediction.numel() or not call.target.numel():
                continue
            if call.name in _OF_LOGARITHMS:
                if float(call.prediction.max()) > _ZERO:
                    self._record.fact("not_logarithms", call.name)
            elif call.name in SYMMETRIC and call.activation in _BOUNDED:
                size = float(call.target.float().abs().mean())
                if size > 1.0:
                    found = {"loss": call.name, "activation": call.activation, "size": float(f"{size:.3g}")}
                    self._record.fact("out_of_reach", found)

    @property
    def only_loss(self) -> str:
        """The loss function that is trained on, where it is one."""
        return self.kind[0] if not self._terms or self._terms[1] <= 1 else ""

    def _measure(self, loss: torch.Tensor) -> None:
        if self._measured >= _LOOKS:
            return
        self._measured += 1
        layers = farthest_weight(loss)
        if layers is None:
            self._measured = _LOOKS
        else:
            known = self._record.history.facts.get("farthest_weight", 0)
            self._record.fact("farthest_weight", max(layers, known))

    def _count(self, terms: int) -> None:
        least, most = self._terms or (terms, terms)
        self._terms = [min(least, terms), max(most, terms)]
        if self._terms[1] > 1:
            self._record.fact("loss_terms", self._terms[1])
            self._record.fact("loss_terms_least", self._terms[0])

    def _learn(self, call: Any, given: torch.Tensor | None) -> None:
        if self._looks >= _LOOKS and call.name == self._loss_name:
            return
        if given is not None and call.name in SYMMETRIC:
            self._leaks.append(inputs.copied_into(given, call.target))
            self._record.fact("target_among_inputs", all(self._leaks))
        self._looks += 1
        self._loss_name = call.name
        self.kind = (call.name, call.reduction)
        self._smoothing = float(call.arguments.get("label_smoothing", 0.0) or 0.0)
        self.ignored = call.ignore_index
        self._weights = call.class_weight.reshape(-1).tolist() if call.class_weight is not None else []
        for name, value in facts_of(call, given).items():
            known = self._record.history.facts
            if name == "target_kind":
                value = _wider(known.get(name), value)
                self.target_kind = value
            if name == "task" and known.get("task") not in (None, "unknown") and value != known["task"]:
                value = "multilabel" if {value, known["task"]} == {"multiclass", "multilabel"} else value
            if name == "target_distinct":
                value = max(value, known.get(name, 0))
            self._record.fact(name, value)
        if call.activation is not None:
            self._record.fact("output_activation", call.activation)
            if call.before is not None:
                self._record.fact("output_activation_of", call.before)

    def _modes(self, passes: Passes, step: int) -> None:
        if self._models != len(self._names.labels):
            self._models = len(self._names.labels)
            kinds = NORMS[:1] + DROPOUTS
            self._sensitive = sorted(
                {
                    type(m).__name__
                    for _, m in self._names.modules()
                    if isinstance(m, kinds) and dropout_of(m) != 0
                }
            )
            self._record.fact("mode_sensitive", self._sensitive)
            shares = ((name, dropout_of(module)) for name, module in self._names.modules())
            dropped = {name: share for name, share in shares if share is not None}
            if dropped:
                self._record.fact("dropout", dropped)
            slow = {
                name: share for name, m in self._names.modules() if (share := _slow_average(m)) is not None
            }
            if slow:
                self._record.fact("slow_statistics", slow)
            if fixed := [name for name, m in self._names.modules() if _never_averages(m)]:
                self._record.fact("fixed_statistics", fixed)
        if passes.dropped:
            self._record.fact("dropout_called", dict(passes.dropped))
        resting = bool(passes.models) and not any(model.training for model in passes.models)
        if self._sensitive and resting and "mode" not in self._looks_said and self._held_back():
            self._looks_said.add("mode")
            self._record.event(step, "training-mode", training=False)

    def _held_back(self) -> bool:
        """Whether any part that is trained has layers in evaluation mode; parts that are frozen belong there."""
        kinds = NORMS[:1] + DROPOUTS
        parts = [
            (part, module) for _, module in self._names.modules() for part in (module, *module.children())
        ]
        return any(
            isinstance(part, kinds)
            and not part.training
            # What has no weights of its own goes with its neighbours.
            and any(p.requires_grad for p in list(parameters_of(part)) or parameters_of(module))
            for part, module in parts
        )

    def _spread(self, passes: Passes, step: int) -> None:
        if passes.broadcasts and "broadcast" not in self._looks_said:
            self._looks_said.add("broadcast")
            output, target, result = passes.broadcasts[0]
            self._record.event(
                step, "broadcast", output=list(output), target=list(target), result=list(result)
            )

    def _reshaped(self, passes: Passes, step: int) -> None:
        found = next(((call.reshaped, call.prediction) for call in passes.calls if call.reshaped), None)
        if found is not None and "reshaped" not in self._looks_said:
            self._looks_said.add("reshaped")
            self._record.event(step, "reshaped", before=list(found[0]), after=list(found[1].shape))

    def _inside(self, passes: Passes, given: torch.Tensor | None, step: int) -> None:
        """What mixes axes up inside of the model, each kind of it once."""
        for found in (*passes.axes.found, passes.axes.among_heads(given)):
            if found is not None and f"axes-{found.kind}" not in self._looks_said:
                self._looks_said.add(f"axes-{found.kind}")
                before, after = list(found.before), list(found.after)
                self._record.event(step, "axes", found.owner, what=found.kind, before=before, after=after)

    def _bent(self, derivative: torch.Tensor | None) -> None:
        """Whether a second derivative is 0 everywhere, time and again: a model may begin flat."""
        if derivative is None or not derivative.numel() or "bent" in self._looks_said:
            return
        self._flat_looks += 1
        if bool((derivative != 0).any()):
            self._looks_said.add("bent")
        elif self._flat_looks >= _LOOKS:
            self._looks_said.add("bent")
            self._record.fact("derivatives_flat", True)

    def _depends(self, passes: Passes, step: int) -> None:
        self.evaluated(passes, step)
        if passes.dependence.wanted:
            self._dependences(passes.dependence.look([module for _, module in self._names.modules()]), step)

    def evaluated(self, passes: Passes, step: int) -> None:
        """What evaluations have shown of what answers depend on."""
        self._dependences(passes.dependence.seen_since(), step)

    def _dependences(self, found: Dependences | None, step: int) -> None:
        for name in ("ahead", "copied", "others", "beyond", "first", "padding", "unplaced"):
            if found is not None and getattr(found, name):
                self._record.event(step, f"depends-{name}", by=int(getattr(found, name)))

    def readings_of(self, plain: Delivery, known: dict[str, float]) -> dict[str, float]:
        """What was delivered and what was ``known`` already, as readings of run scope."""
        out = {name: value for name, value in known.items() if not name.startswith("_")}
        for name in ("output_min", "output_max", "output_mean", "target_min", "target_max", "target_mean",
                     "target_beyond", "target_nonfinite", "output_mass_error", "output_share_min", "output_share_max",
                     "weight_tilt", "output_confidence", "views_alike_least", "views_alike_most", "label_blank",
                     "label_too_long"):  # fmt: skip
            if name in plain:
                out[name] = plain[name]
        for kind in ("output", "target"):
            if f"{kind}_var" in plain:
                out[f"{kind}_std"] = math.sqrt(max(plain[f"{kind}_var"], 0.0))
        far, quartiles = inputs.far_off("target", plain)
        if far is not None:
            out["target_outlier"] = far.off
        if quartiles is not None:
            out["target_iqr"] = quartiles
        if "output_between" in plain:
            out["output_sample_std"] = math.sqrt(max(plain["output_between"], 0.0))
        if plain.get("total"):
            out["accuracy"] = plain["right"] / plain["total"]
        if "predicted_most" in plain:
            out["prediction_top_share"] = plain["predicted_most"]
        elif "predicted_counts" in plain:
            together = self._answers.top_share(plain["predicted_counts"])
            if together is not None:
                out["prediction_top_share"] = together
        counts = plain.get("target_counts")
        if counts is not None and 0 <= self.ignored < len(counts) and sum(counts):
            out["target_ignored"] = counts[self.ignored] / sum(counts)
            counts = plain["target_counts"] = [
                0.0 if label == self.ignored else count for label, count in enumerate(counts)
            ]
        if counts is not None and sum(counts):
            share = self._labels.top_share(counts) if sum(counts) < FEW else max(counts) / sum(counts)
            if share is not None:
                out["target_top_share"] = share
            out["target_classes"] = float(sum(count > 0 for count in counts))
        out.update(self._side_by_side.readings_of(plain))
        if "_margin" in known and plain.get("call_value"):
            out["baseline_loss"] = known["_margin"] * plain["backward_value"] / plain["call_value"]
        if "_rows" in known:
            self._targets.add(plain)
            out.update(self._yardsticks(plain, known))
            if "baseline_loss" in out and "initial_loss_reference" not in self._record.history.facts:
                self._record.fact("initial_loss_reference", out["baseline_loss"])
        return out

    def _yardsticks(self, plain: Delivery, facts: dict[str, float]) -> dict[str, float]:
        """What the loss is to be measured by, on the scale on which the script reports it."""
        out: dict[str, float] = {}
        baseline = self._targets.baseline(self._loss_name, self._smoothing, self._weights)
        if baseline is None:
            return out
        floor = self._targets.floor(self._loss_name, self._smoothing) if not self._weights else 0.0
        if 0.0 < floor < baseline:
            out["floor_share"] = floor / baseline
        call, backward = self._given(plain), plain.get("backward_value")
        if facts.get("_sum"):
            baseline *= facts["_terms"]
        elif facts.get("_per_row"):
            baseline *= facts["_terms"] / facts["_rows"]
        if self._loss_name == "kl_div" and not (call and backward):
            return {}  # averaged by hand or beside another loss, as it often is: over what is not known
        if call and backward is not None and math.isfinite(call) and math.isfinite(backward):
            scale = out["loss_over_call"] = backward / call
            if _is_root(backward, call):
                baseline = math.sqrt(baseline)
            elif 0 < scale < 1e6:
                baseline *= scale
                # a sum is validated per sample, and trained on per batch
                self._scale = min(self._scale, scale * (facts["_rows"] if facts.get("_sum") else 1.0))
        out["baseline_loss"] = baseline
        return out

    def _given(self, plain: Delivery) -> float | None:
        """What the loss function gave, as the mean of its parts where the script adds them up itself.

        Weights of its own leave the mean of them near one; a sum over the values of a sample is many times it.
        """
        parts, backward = plain.get("mean_of_parts"), plain.get("backward_value")
        if parts is None or backward is None:
            return plain.get("call_value")
        if self._added_up is None and parts > 0:
            self._added_up = backward >= _A_SUM * parts
        return parts if self._added_up else None

    def scale_of(self, kind: tuple[str, str], target_spread: float = 0.0) -> float:
        """What a validation loss of this function and reduction is to be multiplied by to be of training's scale.

        ``target_spread`` is the deviation of the targets it was validated with: many a script trains on standardised
        targets and validates in the units of the data.
        """
        if kind != self.kind:
            return 1.0
        scale = self._scale if math.isfinite(self._scale) else 1.0
        trained = self._targets.spread()
        if trained > 0 and target_spread > 0 and not 1 / _UNITS < target_spread / trained < _UNITS:
            scale *= (trained / target_spread) ** power_of(kind[0])
        return scale


def _is_root(backward: float, call: float) -> bool:
    """Whether the square root of a loss was trained on, and not a part of it that happens to be as large."""
    return call > 0 and abs(backward - math.sqrt(call)) < 1e-3 * backward and abs(call - 1) > 0.01


def _wider(known: Any, new: str) -> str:
    """The kind of target that covers both batches: one-hot rows may turn out to be several labels."""
    if known in (None, new):
        return new
    order = ("one-hot", "binary", "probabilities", "values")
    if known in order and new in order:
        return str(max(known, new, key=order.index))
    return str(known)
