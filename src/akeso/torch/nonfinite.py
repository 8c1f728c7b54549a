"""Where a NaN or an infinity came from: found once, when the loss has turned non-finite."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from akeso.torch.graph import nodes
from akeso.torch.naming import Names


@dataclass(frozen=True, slots=True)
class Origin:
    """The first place at which something was not finite."""

    what: str  # "input", "weight", "activation", "loss"
    module: str
    operation: str = ""
    edge: str = ""  # a function that was given a value at the edge of what it is defined for


#: Backward nodes of functions without a finite slope at the edge of what they are defined for: the function, what the
#: node has kept of it, and the size from which that is the edge (``None``: where it is zero).
_EDGES: Final = {
    "SqrtBackward0": ("sqrt", "_saved_result", None), "PowBackward0": ("pow", "_saved_self", None),
    "StdBackward0": ("std", "_saved_result", None), "LogBackward0": ("log", "_saved_self", None),
    "Log2Backward0": ("log2", "_saved_self", None), "Log10Backward0": ("log10", "_saved_self", None),
    "DivBackward0": ("div", "_saved_other", None), "AcosBackward0": ("acos", "_saved_self", 1.0),
    "AsinBackward0": ("asin", "_saved_self", 1.0),
}  # fmt: skip
#: Nodes that are looked at, from the loss on, and functions: what scripts write by hand stands before the last layer.
_NEAR, _MOST = 200, 16
#: Nodes that are looked at in all.
_FAR = 4000


def reaches(loss: torch.Tensor, known: Callable[[torch.Tensor], bool]) -> bool:
    """Whether the gradient of ``loss`` gets to any parameter that is ``known``."""
    variables = (getattr(node, "variable", None) for node in nodes(loss, most=_FAR))
    return any(isinstance(variable, torch.Tensor) and known(variable) for variable in variables)


def edges(loss: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    """Functions near the loss that may have no finite slope, and whether they were given such a value.

    Waits for no device: whether it is so arrives with the readings.
    """
    found: list[tuple[str, torch.Tensor]] = []
    for node in nodes(loss, most=_NEAR):
        name, at = _at_edge(node)
        if at is not None:
            found.append((name, at))
        if len(found) >= _MOST:
            break
    return found


def _at_edge(node: Any) -> tuple[str, torch.Tensor | None]:
    name, attribute, size = _EDGES.get(type(node).__name__, ("", "", None))
    if not name or (name == "pow" and not 0 < _exponent(node) < 1):
        return name, None
    try:
        kept = getattr(node, attribute, None)
    except RuntimeError:  # freed already
        return name, None
    # What is a tensor of another kind, as a part of one that is spread over devices, cannot be sent with the others.
    if type(kept) is not torch.Tensor or not kept.is_floating_point() or not kept.numel():
        return name, None
    kept = kept.detach()
    return name, (kept == 0).any() if size is None else (kept.abs() >= size).any()


def _exponent(node: Any) -> float:
    given = getattr(node, "_saved_exponent", None)
    return float(given) if isinstance(given, (int, float)) else math.nan


def locate(loss: torch.Tensor, names: Names) -> Origin:
    """The earliest non-finite thing behind ``loss``, by its weights and by the graph that is still there."""
    named = [(name, parameter.detach()) for name, parameter in names.parameters()]
    if named:
        norms = torch.stack(
            [norm.float().cpu() for norm in torch._foreach_norm([tensor for _, tensor in named])]
        )
        for (name, _), norm in zip(named, norms.tolist(), strict=True):
            if not math.isfinite(norm):
                return Origin("weight", name.rpartition(".")[0] or name)
    origin = _in_graph(loss, names)
    if origin.what == "loss":
        # Nothing that was kept is broken: a function near the loss has made it, out of values that were not.
        edge = next((name for name, at in edges(loss) if bool(at)), "")
        origin = replace(origin, edge=edge)
    return origin


def _in_graph(loss: torch.Tensor, names: Names) -> Origin:
    """Walk from the loss towards the input; the last non-finite saved tensor on the way is the first in time."""
    origin = Origin("loss", "", "")
    for node in nodes(loss, most=_FAR):
        found = _saved_nonfinite(node)
        if found is not None:
            what, culprit = found
            module = _module_of(culprit, names)
            kind = type(culprit).__name__.split("Backward")[0].lower()
            origin = Origin(what, module or origin.module, kind)
    return origin


def _saved_nonfinite(node: Any) -> tuple[str, Any] | None:
    """What is not finite about a node, and the node that made it so."""
    for attribute in (*_GIVEN, *_MADE):
        try:
            tensor = getattr(node, attribute, None)
        except RuntimeError:  # freed already
            continue
        if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
            continue
        if not bool(torch.isfinite(tensor).all()):
            if attribute in _MADE:
                return "activation", node
            maker = _maker(node)
            return ("input", node) if maker is None else ("activation", maker)
    return None


#: What a node was given, and what it made.
_GIVEN = ("_saved_mat1", "_saved_input", "_saved_self")
_MADE = ("_saved_result", "_saved_output")


def _maker(node: Any) -> Any:
    """The node whose result this one was given; ``None`` when nothing but parameters flows into it."""
    for parent, _ in node.next_functions:
        if parent is not None and type(parent).__name__ not in (
            "AccumulateGrad",
            "TBackward0",
            "TransposeBackward0",
        ):
            return parent
    return None


def _module_of(node: Any, names: Names) -> str:
    """The module whose parameter is nearest to ``node`` on the input side."""
    queue: deque[Any] = deque([node])
    for _ in range(64):
        if not queue:
            return ""
        current = queue.popleft()
        variable = getattr(current, "variable", None)
        if variable is not None:
            if names.known(variable):
                return names.parameter(variable).rpartition(".")[0]
            continue
        queue.extend(parent for parent, _ in current.next_functions if parent is not None)
    return ""
