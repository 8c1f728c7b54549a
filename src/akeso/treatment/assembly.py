"""Putting a recipe together under a prescription: model, loss, optimizer, data, all changed as prescribed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from akeso.errors import AkesoError, BadInput, Refused
from akeso.torch.groups import leading
from akeso.torch.surgery import losses
from akeso.torch.surgery.anatomy import examine_model
from akeso.torch.surgery.attachment import attach_front
from akeso.torch.surgery.inputs import InputScaler, fit_scaler, standardise_targets
from akeso.torch.surgery.operation import MODEL_REMEDIES, operate
from akeso.torch.surgery.optimizers import adopt, scale_rates, successor
from akeso.torch.surgery.registration import register_held
from akeso.treatment.batches import Batches, TensorBatches
from akeso.treatment.metrics import Metric, infer_task, resolve, threshold_of
from akeso.treatment.prescription import Edit, Prescription
from akeso.treatment.recipe import Recipe

#: Samples that scales, priors and class weights are taken from.
_FITTED_ON = 20_000


@dataclass(slots=True)
class Assembly:
    """A recipe ready to train."""

    model: nn.Module
    loss: losses.Loss
    train: Batches
    batch_size: int
    metric: Metric
    task: str
    original_loss: losses.Loss
    optimizer: torch.optim.Optimizer
    scheduler: Any = None
    restore: Callable[[Tensor], Tensor] | None = None
    scaler: InputScaler | None = None
    clip: tuple[str, float] | None = None
    guarded: bool = False
    attached: bool = False
    warm_up: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    refused: list[tuple[Edit, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def prepared(self, inputs: Iterable[Any], place: torch.device) -> tuple[Any, ...]:
        """A batch's inputs on the device, cleaned and scaled where that is prescribed."""
        there = moved(inputs, place)
        return there if self.scaler is None else (self.scaler(there[0]), *there[1:])

    def hand_over(self) -> nn.Module:
        """The model as the user gets it: one that takes raw inputs. Training it here is over then."""
        if self.scaler is not None:
            attach_front(self.model, "akeso_inputs", self.scaler)
            self.scaler = None
        return self.model


def assemble(recipe: Recipe, prescription: Prescription, seed: int) -> Assembly:
    """Build everything anew from a seed; edits that cannot be made are refused with the reason."""
    torch.manual_seed(seed)
    model = _fresh_model(recipe, seed)
    train = _without_missing_targets(recipe._train, prescription)
    inputs, target = _first(recipe, train)
    loss = recipe.make_loss()
    refused: list[tuple[Edit, str]] = []
    notes: list[str] = []
    with torch.random.fork_rng(devices=[]):
        anatomy = examine_model(model, inputs)
    outputs = [site.kind for site in anatomy.outputs()]
    last = outputs[-1].lower() if outputs else "none"
    if isinstance(anatomy.output, Tensor):
        last = "sigmoid" if last == "hardsigmoid" else last
    name = losses.loss_name(loss)
    task = infer_task(anatomy.output, target, name)
    metric = resolve(recipe.metric, recipe.higher_is_better, recipe.threshold, task, name, last)
    built = Assembly(
        model, loss, train, recipe.batch_size, metric, task, loss, recipe.make_optimizer(model.parameters()),
        refused=refused, notes=notes,
    )  # fmt: skip
    built.facts["task"] = task
    built.facts["activations"] = {site.name: site.kind for site in anatomy.hidden()}
    if isinstance(anatomy.output, Tensor):
        units = int(anatomy.output.shape[1]) if anatomy.output.dim() > 1 else 1
        built.facts["classes"] = units
        if task in ("binary", "multiclass"):
            # Whatever a loss makes of them, these are the model's answers and the right ones.
            built.facts["aim"] = {"task": task, "classes": units}
        built.facts["output_activation"] = last
    _edit_data(built, prescription)
    example = built.prepared(inputs, recipe.place)
    operation = operate(model, prescription, example, output_bias=_prior(built, anatomy.output))
    refused += operation.refused
    notes += operation.notes
    _edit_units(built, prescription)
    _edit_loss(built, prescription, anatomy.output, last)
    _make_optimizer(built, recipe, prescription, operation.new_parameters)
    return built


def _fresh_model(recipe: Recipe, seed: int) -> nn.Module:
    if isinstance(recipe.model, nn.Module):
        model = copy.deepcopy(recipe.model)
        if seed != recipe.seed:
            for module in model.modules():
                reset = getattr(module, "reset_parameters", None)
                if callable(reset):
                    reset()
    else:
        model = recipe.model()
    if not isinstance(model, nn.Module):
        raise BadInput(f"model() must give a torch.nn.Module, but gave {type(model).__name__}.")
    return model.to(recipe.place)


def _first(recipe: Recipe, train: Batches) -> tuple[tuple[Any, ...], Any]:
    for inputs, target in train.epoch(min(recipe.batch_size, 64), None):
        return moved(inputs, recipe.place), moved((target,), recipe.place)[0]
    raise BadInput("train has no samples.")


def moved(values: Iterable[Any], place: torch.device) -> tuple[Any, ...]:
    """Tensors on the device; everything else as it is."""
    return tuple(value.to(place) if isinstance(value, Tensor) else value for value in values)


def _without_missing_targets(train: Batches, prescription: Prescription) -> Batches:
    if not prescription.of("scale-inputs") or not isinstance(train, TensorBatches):
        return train
    target = train.tensors[-1]
    if not target.is_floating_point() or bool(torch.isfinite(target).all()):
        return train
    keep = torch.isfinite(target).reshape(len(target), -1).all(1)
    return TensorBatches(tuple(tensor[keep] for tensor in train.tensors), train.drop_last)


def _each(
    built: Assembly, prescription: Prescription, remedy: str, make: Callable[[Edit], str | None]
) -> None:
    """Make the edits of one remedy; whatever goes wrong is a refusal with its reason."""
    for edit in prescription.of(remedy):
        try:
            note = make(edit)
        except AkesoError as refusal:
            built.refused.append((edit, str(refusal)))
        except Exception as error:
            built.refused.append((edit, f"{type(error).__name__}: {error}"))
        else:
            built.notes += [note] if note else []


def _edit_data(built: Assembly, prescription: Prescription) -> None:
    def batch_size(edit: Edit) -> str:
        built.batch_size = max(1, int(edit.values["to"]))
        return f"batches of {built.batch_size}"

    def scale(edit: Edit) -> str:
        inputs, _ = built.train.everything(_FITTED_ON)
        if not isinstance(inputs, Tensor):
            raise Refused("inputs are no tensors")
        # The scaler works in front of the model until it is handed over, so that the watch sees what it makes.
        device = next(built.model.parameters()).device
        built.scaler, found = fit_scaler(inputs.to(device), only_clean=edit.values.get("kind") == "none")
        return "inputs: " + "; ".join(found)

    _each(built, prescription, "set-batch-size", batch_size)
    _each(built, prescription, "scale-inputs", scale)
    for remedy in ("add-zero-grad", "set-mode"):
        _each(built, prescription, remedy, _done_by_recipes)


def _done_by_recipes(edit: Edit) -> str:
    raise Refused(f"the loop of a recipe does this already ({edit.remedy})")


def _prior(built: Assembly, output: Any) -> Tensor | None:
    """What the last bias would be if the prediction were constant and right on average."""
    _, target = built.train.everything(_FITTED_ON)
    if not isinstance(target, Tensor) or not isinstance(output, Tensor):
        return None
    if built.task == "multiclass":
        classes = output.shape[1]
        labels = (
            target.argmax(1)
            if target.dim() == 2 and target.shape[1] == classes
            else target.reshape(-1).long()
        )
        counts = torch.bincount(labels[labels >= 0], minlength=classes).float() + 1.0
        return torch.log(counts / counts.sum())
    if built.task == "binary":
        share = (target > 0).float().mean().clamp(1e-3, 1 - 1e-3)
        return torch.logit(share).reshape(1)
    if built.task == "regression":
        return target.float().reshape(len(target), -1).nanmean(0)
    return None


def _edit_units(built: Assembly, prescription: Prescription) -> None:
    def standardise(edit: Edit) -> str:
        if built.task != "regression":
            raise Refused(f"targets of a {built.task} task have no units")
        _, target = built.train.everything(_FITTED_ON)
        mean, scale = standardise_targets(built.model, target.to(next(built.model.parameters()).device))
        built.loss = losses.InUnits(built.loss, mean, scale)
        return f"targets standardised: mean {float(mean.mean()):.4g}, deviation {float(scale.mean()):.4g}"

    _each(built, prescription, "standardise-targets", standardise)


def _edit_loss(built: Assembly, prescription: Prescription, output: Any, last: str) -> None:
    given = last
    outputs = [edit for edit in prescription.of("substitute-activation") if edit.where == "output"]
    made = [edit for edit in outputs if edit not in [refused for refused, _ in built.refused]]
    stripped = any(str(edit.values["to"]) in ("none", "Identity", "LogSoftmax") for edit in made)
    if made and not stripped:
        last = str(made[-1].values["to"]).lower()

    def substitute(edit: Edit) -> str:
        if "log_input" in edit.values:
            built.loss = losses.told_of_rates(built.loss, log_input=bool(edit.values["log_input"]))
            return "the loss takes rates" if not edit.values["log_input"] else "the loss takes logarithms"
        to, on = str(edit.values["to"]), str(edit.values.get("on", "logits"))
        new = losses.TaskLoss(to, on)
        old = built.loss
        built.loss = losses.InUnits(new, old.mean, old.scale) if isinstance(old, losses.InUnits) else new
        return f"loss {to} on {on}"

    def weigh(edit: Edit) -> str:
        _, target = built.train.everything(_FITTED_ON)
        classes = int(output.shape[1]) if output.dim() > 1 and output.shape[1] > 1 else 2
        built.loss = losses.weighted(built.loss, losses.class_weights(target, classes))
        return "classes weighted by inverse frequency"

    def reconcile(edit: Edit) -> str:
        built.loss = losses.Reconciled(built.loss)
        return "targets in the shape of outputs"

    def scale(edit: Edit) -> str:
        low, high = float(edit.values["low"]), float(edit.values["high"])
        built.loss = losses.Between(built.loss, low, high)
        return f"targets from {low:g} to {high:g} as 0 to 1"

    def multiply(edit: Edit) -> str:
        factor = float(edit.values["factor"])
        built.loss = losses.multiplied(built.loss, factor)
        return f"logits times {factor:g}"

    def average(edit: Edit) -> str:
        built.loss = losses.averaged(built.loss)
        return "loss averaged over the batch"

    _each(built, prescription, "substitute-loss", substitute)
    _each(built, prescription, "scale-targets", scale)
    _each(built, prescription, "scale-logits", multiply)
    _each(built, prescription, "weight-classes", weigh)
    _each(built, prescription, "fix-broadcast", reconcile)
    _each(built, prescription, "mean-reduction", average)
    built.metric, built.restore = _judged_as(built, stripped, last, given)


def _judged_as(
    built: Assembly, stripped: bool, last: str, given: str
) -> tuple[Metric, Callable[[Tensor], Tensor] | None]:
    """A model that now gives logits is judged as one; a metric of the user's sees what it used to see."""
    name = losses.loss_name(built.loss)
    changed = built.loss is not built.original_loss
    metric = built.metric
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "softmax": lambda value: value.softmax(-1), "logsoftmax": lambda value: value.log_softmax(-1),
        "sigmoid": torch.sigmoid,
    }  # fmt: skip
    restore = functions.get(last) if stripped else None
    if metric.function is not None or metric.name == "loss":
        return metric, restore
    if (changed or stripped or last != given) and built.task in ("binary", "multilabel"):
        limit = threshold_of(name, "none" if stripped else last)
        metric = Metric(metric.name, metric.higher_is_better, None, limit)
    return metric, None


def _make_optimizer(
    built: Assembly, recipe: Recipe, prescription: Prescription, new: list[nn.Parameter]
) -> None:
    model = built.model
    optimizer = recipe.make_optimizer(model.parameters())
    adopt(optimizer, new)
    built.optimizer = optimizer
    reserved = ("to", "lr", "from")

    def substitute(edit: Edit) -> str:
        options = {key: value for key, value in edit.values.items() if key not in reserved}
        rate = edit.values.get("lr")
        built.optimizer = successor(built.optimizer, str(edit.values["to"]), rate, options)
        return f"optimizer {edit.values['to']}"

    def rate(edit: Edit) -> str:
        scale_rates(built.optimizer, to=edit.values.get("to"), factor=edit.values.get("factor"))
        return f"learning rate {leading(built.optimizer)['lr']:g}"

    def decay(edit: Edit) -> str:
        for group in built.optimizer.param_groups:
            if "weight_decay" not in group:
                raise Refused("the optimizer knows no weight decay")
            group["weight_decay"] = min(float(edit.values["to"]), float(group["weight_decay"]))
        return f"weight decay {edit.values['to']:g}"

    def add(edit: Edit) -> str:
        register_held(model)
        chosen = [
            p for n, p in model.named_parameters() if edit.where in ("", "all") or n.startswith(edit.where)
        ]
        if not adopt(built.optimizer, chosen, decay=True):
            raise Refused("the optimizer has all trainable parameters already")
        return "missing parameters added to the optimizer"

    def clip(edit: Edit) -> None:
        built.clip = (str(edit.values.get("kind", "norm")), float(edit.values["limit"]))

    def guard(edit: Edit) -> None:
        built.guarded = True

    def attach(edit: Edit) -> None:
        built.attached = True

    def warm_up(edit: Edit) -> None:
        built.warm_up = int(edit.values["steps"])

    _each(built, prescription, "substitute-optimizer", substitute)
    _each(built, prescription, "set-learning-rate", rate)
    _each(built, prescription, "set-weight-decay", decay)
    _each(built, prescription, "add-to-optimizer", add)
    _each(built, prescription, "clip-gradient", clip)
    _each(built, prescription, "guard-functions", guard)
    _each(built, prescription, "keep-attached", attach)
    _each(built, prescription, "warm-up", warm_up)

    def hold(edit: Edit) -> str:
        if recipe.scheduler is None:
            raise Refused("the recipe has no schedule")
        built.scheduler = None
        for group, rate in zip(built.optimizer.param_groups, given, strict=True):
            group["lr"] = rate  # some schedules change it as soon as they are made
        return "no schedule"

    given = [group["lr"] for group in built.optimizer.param_groups]
    built.scheduler = recipe.scheduler(built.optimizer) if recipe.scheduler is not None else None
    _each(built, prescription, "hold-learning-rate", hold)


#: What a recipe can change; the rest concerns loops of the user's own.
SUPPORTED = frozenset(MODEL_REMEDIES) | {
    "set-batch-size",
    "scale-inputs",
    "standardise-targets",
    "scale-targets",
    "scale-logits",
    "substitute-loss",
    "weight-classes",
    "fix-broadcast",
    "mean-reduction",
    "substitute-optimizer",
    "set-learning-rate",
    "find-learning-rate",
    "set-weight-decay",
    "add-to-optimizer",
    "clip-gradient",
    "guard-functions",
    "keep-attached",
    "warm-up",
    "hold-learning-rate",
    "roll-back",
    "keep-best-weights",
    "reseed",
}
