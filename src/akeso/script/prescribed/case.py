"""A model under treatment."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

ATTRIBUTE = "_akeso_case"


class Case:
    """What is known of one model. A copy of a model is a case of its own: already treated, with own parts."""

    def __init__(self) -> None:
        self.treated = False
        self.holder: nn.Module | None = None  # the module of the script's own in whose method it is called
        self.loaded = False  # its weights came from a file
        self.seen_training = False
        self.example: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        self.new: list[nn.Parameter] = []
        self.norms: list[nn.Module] = []  # ours, the only parts for which modes matter
        self.switched = False  # into evaluation mode, by us

    def __deepcopy__(self, memo: dict[int, Any]) -> Case:
        import copy

        other = Case()
        other.switched = self.switched
        other.treated, other.loaded, other.seen_training = self.treated, self.loaded, self.seen_training
        other.example = self.example
        other.new = [copy.deepcopy(parameter, memo) for parameter in self.new]
        other.norms = [copy.deepcopy(norm, memo) for norm in self.norms]
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        return (_again, (self.treated,))


def _again(treated: bool) -> Case:
    case = Case()
    case.treated = treated
    return case


def case_of(model: nn.Module) -> Case:
    """The case of a model, new where there is none."""
    case = model.__dict__.get(ATTRIBUTE)
    if not isinstance(case, Case):
        case = Case()
        model.__dict__[ATTRIBUTE] = case
    return case


def detached(value: Any) -> Any:
    """The value with its tensors cut off from the graph."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(detached(item) for item in value)
    if isinstance(value, dict):
        return {name: detached(item) for name, item in value.items()}
    return value
