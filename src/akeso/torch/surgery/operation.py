"""Applying the edits of a prescription that change a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, nn

from akeso.errors import AkesoError, Refused
from akeso.remedies.edit import Edit
from akeso.torch.surgery.anatomy import examine_model
from akeso.torch.surgery.initialisation import reinitialise, set_output_bias
from akeso.torch.surgery.names import embed_names
from akeso.torch.surgery.normalisation import insert_normalisation
from akeso.torch.surgery.pictures import turn_pictures
from akeso.torch.surgery.residual import add_residual
from akeso.torch.surgery.substitution import substitute_activation

#: The remedies that change a model; the order in which they have to be made, whatever the prescription's.
MODEL_REMEDIES: Final = (
    "unfreeze",
    "set-dropout",
    "set-averaging",
    "turn-recurrence",
    "turn-pictures",
    "embed-inputs",
    "substitute-activation",
    "insert-normalisation",
    "add-residual",
    "reinitialise",
    "set-output-bias",
)


@dataclass(slots=True)
class Operation:
    """What was done to a model: new parameters for the optimizer, refusals with reasons, notes."""

    new_parameters: list[nn.Parameter] = field(default_factory=list)
    refused: list[tuple[Edit, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def operate(
    model: nn.Module,
    edits: Iterable[Edit],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    output_bias: Tensor | None = None,
) -> Operation:
    """Make the model edits among ``edits`` on a live model, in place.

    ``args`` and ``kwargs`` are one call's inputs: a forward pass with them shows where activations are, also
    those called as functions. An edit that cannot be made is refused with the reason and the others go on;
    an edit that raises leaves the model as it was before it where it can, and is refused too.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Sigmoid(), torch.nn.Linear(8, 2))
    >>> done = operate(model, [Edit("substitute-activation", "hidden", {"to": "SELU"})], (torch.zeros(3, 4),))
    >>> type(model[1]).__name__
    'SELU'
    """
    operation = Operation()
    wanted = [edit for edit in edits if edit.remedy in MODEL_REMEDIES]
    inner = unwrapped(model)
    for edit in sorted(wanted, key=lambda edit: MODEL_REMEDIES.index(edit.remedy)):
        try:
            operation.notes.append(_make(inner, edit, args, dict(kwargs or {}), output_bias, operation))
        except AkesoError as refusal:
            operation.refused.append((edit, str(refusal)))
        except Exception as error:
            operation.refused.append((edit, f"{type(error).__name__}: {error}"))
    return operation


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's model inside data parallelism."""
    parallel = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    return model.module if isinstance(model, parallel) else model


def _make(
    model: nn.Module,
    edit: Edit,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    bias: Tensor | None,
    done: Operation,
) -> str:
    if isinstance(model, torch.jit.ScriptModule):
        raise Refused("a scripted model cannot be changed")
    values = edit.values
    if edit.remedy == "unfreeze":
        return _unfreeze(model, edit.where)
    if edit.remedy == "set-dropout":
        return _set_dropout(model, float(values["to"]))
    if edit.remedy == "set-averaging":
        return _set_averaging(model, float(values["to"]))
    if edit.remedy == "turn-recurrence":
        return _turn_recurrence(model, edit.where)
    if edit.remedy == "turn-pictures":
        return turn_pictures(model, args)
    anatomy = examine_model(model, args, kwargs)
    if edit.remedy == "substitute-activation":
        return substitute_activation(
            model, anatomy, edit.where, str(values["to"]), str(values.get("from", ""))
        )
    if edit.remedy == "insert-normalisation":
        note, new = insert_normalisation(model, anatomy, str(values.get("kind", "batch")))
    elif edit.remedy == "embed-inputs":
        note, new = embed_names(model, anatomy, int(values["names"]), args)
    elif edit.remedy == "add-residual":
        note, new = add_residual(model, anatomy)
    elif edit.remedy == "reinitialise":
        small = values.get("tables") == "small"
        return reinitialise(
            model, anatomy, str(values.get("scheme", "auto")), values.get("seed"), small_tables=small
        )
    else:
        if bias is None:
            raise Refused("the class prior is not known")
        return set_output_bias(anatomy, bias)
    done.new_parameters += new
    return note


def _set_dropout(model: nn.Module, rate: float) -> str:
    changed = 0
    for module in model.modules():
        held = "p" if isinstance(module, nn.modules.dropout._DropoutNd) else "dropout"
        now = getattr(module, held, None)
        if (
            isinstance(now, float)
            and now > rate
            and isinstance(module, nn.modules.dropout._DropoutNd | nn.RNNBase | nn.MultiheadAttention)
        ):
            setattr(module, held, rate)
            changed += 1
    if not changed:
        raise Refused(f"no dropout above {rate:g} was found")
    return f"dropout at {rate:g} in {changed} places"


def _set_averaging(model: nn.Module, momentum: float) -> str:
    """Let running averages take in a larger part of what each batch shows."""
    slow = [
        module
        for module in model.modules()
        if isinstance(module, nn.modules.batchnorm._NormBase)
        and module.momentum is not None
        and module.momentum < momentum
    ]
    for module in slow:
        module.momentum = momentum
    if not slow:
        raise Refused(f"no batch norm with a momentum below {momentum:g} was found")
    return f"momentum {momentum:g} in {len(slow)} batch norms"


def _turn_recurrence(model: nn.Module, where: str) -> str:
    """Let a recurrent layer take time where it took samples: the name may be that from a larger model on."""
    for name, module in model.named_modules():
        named = name == where or (name and where.endswith(f".{name}")) or name.endswith(f".{where}")
        if named and isinstance(module, nn.RNNBase):
            module.batch_first = not module.batch_first
            return (
                f"{name or type(module).__name__} takes {'samples' if module.batch_first else 'time'} first"
            )
    raise Refused(f"the model has no recurrent layer {where}")


def _unfreeze(model: nn.Module, where: str) -> str:
    changed = 0
    for name, parameter in model.named_parameters():
        chosen = where in ("", "all") or name == where or name.startswith(where + ".")
        if chosen and not parameter.requires_grad and parameter.is_floating_point():
            parameter.requires_grad_(True)
            changed += 1
    if not changed:
        raise Refused(f"no frozen parameter {'was found' if where in ('', 'all') else 'is named ' + where}")
    return f"{changed} parameters are trainable now"
