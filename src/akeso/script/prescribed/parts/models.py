"""Edits of the model itself: surgery at its first forward pass, new parameters handed to its optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn
from torch.optim import Optimizer

from akeso.remedies.edit import EVERYTHING, Edit
from akeso.script.prescribed.case import Case, case_of
from akeso.script.prescribed.drawing import Untouched, how_drawn, joined
from akeso.script.prescribed.functions import PROBABILITIES
from akeso.script.prescribed.inserted import Before
from akeso.script.prescribed.ledger import Ledger
from akeso.script.prescribed.part import Part
from akeso.script.prescribed.places import caller, made_at
from akeso.torch.surgery.anatomy import examine_model
from akeso.torch.surgery.bypass import output_function
from akeso.torch.surgery.initialisation import redraw_held
from akeso.torch.surgery.operation import operate
from akeso.torch.surgery.registration import register_held

if TYPE_CHECKING:
    from akeso.script.prescribed.operation import Operation

_SURGERY = (
    "unfreeze", "set-averaging", "turn-recurrence", "turn-pictures", "embed-inputs", "substitute-activation",
    "insert-normalisation", "add-residual", "reinitialise",
)  # fmt: skip
#: What names a part that is put into a model, or another that it goes with.
_NAMES = ("name", "owner", "layer", "activation")
#: Steps of an optimizer in which it is given what belongs to it.
_FIRST_STEPS = 3
_NO_MODEL = "no model was seen: the script calls no torch.nn.Module with parameters"


def by_the_loss(edit: Edit) -> bool:
    """Whether an output activation is better left to the script and taken off where the loss looks at it.

    So the script's own probabilities, thresholds and prints keep their meaning.
    """
    return (
        edit.remedy == "substitute-activation"
        and edit.where == "output"
        and edit.values.get("to") in ("none", "Identity", "LogSoftmax")
        and edit.values.get("in") != "model"
        and str(edit.values.get("from", "Softmax")) in PROBABILITIES
    )


class Models(Part):
    """Operates on every model the script calls, before its first forward pass."""

    remedies: ClassVar = dict.fromkeys((*_SURGERY, "add-to-optimizer"), _NO_MODEL) | {
        "set-dropout": "the model has no dropout layer"
    }

    def __init__(self, operation: Operation, ledger: Ledger) -> None:
        super().__init__(operation, ledger)
        self._taken: dict[int, int] = {}  # steps of each optimizer

    def _set_dropout(self, model: nn.Module) -> None:
        edit = self.ledger.one("set-dropout")
        if edit is None:
            return
        limit, seen = float(edit.values["to"]), False
        for module in model.modules():
            if isinstance(module, nn.modules.dropout._DropoutNd):
                module.p, seen = min(module.p, limit), True
            elif isinstance(module, nn.RNNBase | nn.MultiheadAttention) and module.dropout:
                module.dropout, seen = min(module.dropout, limit), True
        if seen:
            self.ledger.mark(edit)

    def on_model(self, model: nn.Module, case: Case) -> None:
        """Operate, and hand new parameters to the optimizers that have the model's."""
        self._set_dropout(model)
        edits = [
            edit
            for edit in self.ledger.prescription
            if edit.remedy in _SURGERY and edit not in self.ledger.refused and not by_the_loss(edit)
        ]
        for edit in list(edits):
            if edit.remedy == "reinitialise" and _is_loaded(model):
                self.ledger.object_to(edit, "the weights were loaded from a file and are not drawn anew")
                edits.remove(edit)
        if edits:
            args, kwargs = case.example
            known = {id(parameter) for parameter in model.parameters()}
            modules = {id(module) for module in model.modules()}
            placed = any(edit.remedy in ("insert-normalisation", "add-residual") for edit in edits)
            before = Before(model, args, kwargs) if placed else None
            whole = any(edit.values.get("from") == EVERYTHING for edit in edits)
            function = output_function(examine_model(model, args, kwargs)) if whole else ""
            untouched = Untouched.of(model)
            done = operate(model, edits, args, kwargs)
            refused = dict(done.refused)
            home = _home(model, case)
            if function:
                self.ledger.facts["bypassed"] = function
            if before is not None:
                self._note("norms", before.norms_in(model), home)
                self._note("shortcuts", before.shortcuts_in(model), home)
            for edit in edits:
                if edit in refused:
                    self.ledger.object_to(edit, refused[edit])
                else:
                    self.ledger.mark(edit)
                    if edit.remedy == "reinitialise":
                        scheme = str(edit.values.get("scheme", "auto"))
                        drawn = how_drawn(model, scheme, args, kwargs, untouched)
                        self.ledger.facts["drawn"] = joined(self.ledger.facts.get("drawn"), drawn, home)
            for note in done.notes:
                self.ledger.note(note)
            case.new = [parameter for parameter in model.parameters() if id(parameter) not in known]
            batch = nn.modules.batchnorm._BatchNorm
            modal = (batch, nn.modules.dropout._DropoutNd, nn.modules.instancenorm._InstanceNorm)
            if not any(isinstance(m, modal) for m in model.modules() if id(m) in modules):
                case.norms = [m for m in model.modules() if isinstance(m, batch) and id(m) not in modules]
        self._enrol(model)

    def _note(self, kind: str, parts: list[dict[str, Any]], home: str) -> None:
        """Remember parts that were put into a model, by names from its home on; copies of it have the same."""
        known = self.ledger.facts.setdefault(kind, [])
        for part in parts:
            named = {key: part[key] for key in _NAMES if key in part}
            at_home = {
                key: f"{home}.{name}".strip(".") if name or key == "owner" else ""
                for key, name in named.items()
            }
            if {**part, **at_home} not in known:
                known.append({**part, **at_home})

    def on_input(self, model: nn.Module, args: tuple[Any, ...], *, training: bool) -> tuple[Any, ...]:
        """Batch norms that are ours make modes matter: a script that had no need to switch them is helped."""
        case = case_of(model)
        if case.norms:
            evaluating = not torch.is_grad_enabled()
            self.ledger.place(f"called when {'evaluated' if evaluating else 'trained'}", caller(2))
            if evaluating and model.training:
                model.eval()
                case.switched = True
                self.ledger.facts["modes_set"] = True  # the script itself does not
            elif not evaluating and case.switched:
                model.train()
                case.switched = False
        return args

    def on_optimizer(self, optimizer: Optimizer) -> None:
        """An optimizer made after the surgery may have been given a list of parameters made before it.

        Weights that belong to no module are first met here.
        """
        for model in self.operation.models:
            self._enrol_with(model, optimizer)
        edit = self.ledger.one("reinitialise")
        held = [
            tensor
            for group in optimizer.param_groups
            for tensor in group["params"]
            if not isinstance(tensor, nn.Parameter)
        ]
        if edit is not None and redraw_held(held):
            self.ledger.mark(edit)

    def before_step(self, optimizer: Optimizer) -> None:
        """Optimizers made before the first forward pass have all they need by now; one of a later stage begins then."""
        taken = self._taken[id(optimizer)] = self._taken.get(id(optimizer), 0) + 1
        if taken > _FIRST_STEPS:
            return
        edit = self.ledger.one("add-to-optimizer")
        for model in self.operation.models:
            if case_of(model).new or edit is not None:
                self._enrol_with(model, optimizer)
        if edit is not None and _trains_nothing(optimizer):
            self._take_over(optimizer, edit)
        if edit is not None and len(self.operation.optimizers) == 1:
            self._take_in(optimizer, edit)

    def _enrol(self, model: nn.Module) -> None:
        for optimizer in self.operation.optimizers:
            self._enrol_with(model, optimizer)

    def _enrol_with(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Append to the group that has the model's parameters, so that schedulers see no new group."""
        has = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        own = {id(parameter) for parameter in model.parameters()}
        home = next((g for g in optimizer.param_groups if any(id(p) in own for p in g["params"])), None)
        if home is None:
            return
        home["params"].extend(parameter for parameter in case_of(model).new if id(parameter) not in has)
        edit = self.ledger.one("add-to-optimizer")
        if edit is None:
            return
        self._note_held(model, register_held(model))
        missing = self._missing(model, edit)
        if missing:
            self._add(edit, missing, home)
        elif not self.ledger.is_applied(edit):
            self.ledger.object_to(edit, "every parameter of the model is in an optimizer already")

    def _note_held(self, model: nn.Module, names: list[str]) -> None:
        """Remember which attributes of which classes held modules in plain lists and dicts."""
        known = self.ledger.facts.setdefault("held", [])
        for name in names:
            prefix, _, attribute = name.rpartition(".")
            kind = type(model.get_submodule(prefix))
            self.ledger.place("class", made_at(kind))
            found = {"class": kind.__name__, "attribute": attribute,
                     "kind": type(getattr(model.get_submodule(prefix), attribute)).__name__}  # fmt: skip
            known += [] if found in known else [found]

    def _missing(self, model: nn.Module, edit: Edit) -> dict[str, nn.Parameter]:
        """What no optimizer has of the parameters that are to be trained, by name."""
        known = {id(p) for o in self.operation.optimizers for g in o.param_groups for p in g["params"]}
        return {
            name: parameter
            for name, parameter in model.named_parameters()
            if id(parameter) not in known
            and parameter.requires_grad
            and (edit.where in ("", "all") or name == edit.where or name.startswith(edit.where + "."))
        }

    def _add(self, edit: Edit, missing: dict[str, nn.Parameter], group: dict[str, Any]) -> None:
        """Put parameters into a group of an optimizer, whose settings are theirs from then on."""
        group["params"].extend(missing.values())
        self.ledger.mark(edit)
        names = self.ledger.facts.setdefault("left_out", [])
        names += [name for name in missing if name not in names]

    def _take_over(self, optimizer: Optimizer, edit: Edit) -> None:
        """Give an optimizer that trains nothing what gets gradients and is in none: it has taken its parameters' place.

        That is what is left of one that was made before the layer it was made for.
        """
        for model in self.operation.models:
            missing = self._missing(model, edit)
            if any(parameter.grad is not None for parameter in missing.values()):
                self._add(edit, missing, optimizer.param_groups[0])

    def _take_in(self, optimizer: Optimizer, edit: Edit) -> None:
        """Give the only optimizer there is a model of which it has nothing at all, where that gets gradients."""
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for model in self.operation.models:
            missing = self._missing(model, edit)
            of_another = any(id(parameter) in held for parameter in model.parameters())
            if of_another or all(parameter.grad is None for parameter in missing.values()):
                continue
            self._add(edit, missing, optimizer.param_groups[0])
            if (name := self.operation.names.of(model)) is not None:
                self.ledger.facts.setdefault("left_out_models", []).append(name)


def _trains_nothing(optimizer: Optimizer) -> bool:
    """Whether an optimizer is about to step and nothing of what it was given has a gradient."""
    given = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return all(parameter.grad is None or not bool(parameter.grad.any()) for parameter in given)


def _home(model: nn.Module, case: Case) -> str:
    """The name of a model in what it is part of; empty where it is called for itself."""
    parts = case.holder.named_modules() if case.holder is not None else ()
    return next((name for name, part in parts if part is model), "")


def _is_loaded(model: nn.Module) -> bool:
    return any(module.__dict__.get("_akeso_loaded") for module in model.modules())
