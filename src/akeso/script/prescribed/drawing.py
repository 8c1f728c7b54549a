"""How new weights were drawn, layer by layer, so that the change to a script can draw them alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from akeso.torch.surgery.anatomy import NORMS, RECURRENT, WEIGHTED, examine_model
from akeso.torch.surgery.initialisation import bare_draws, fitting_scheme, is_bias_table

_TABLES = (nn.Embedding, nn.EmbeddingBag)
_RECURRENT = (nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell, nn.RNNCell)


@dataclass(frozen=True)
class Untouched:
    """What only the weights that a script drew itself can tell of how they are drawn anew."""

    reset: list[str]
    bare: dict[str, float]

    @staticmethod
    def of(model: nn.Module) -> Untouched:
        """Look at a model before anything is done to it."""
        return Untouched(_otherwise_drawn(model), bare_draws(model))


@torch.no_grad()
def _otherwise_drawn(model: nn.Module) -> list[str]:
    """The kinds of norms and attentions of which one has other weights than it draws itself."""
    kinds = {
        type(module) for module in model.modules() if isinstance(module, (*NORMS, nn.MultiheadAttention))
    }
    found = (module for module in model.modules() if type(module) in kinds and _drawn(module))
    return sorted({type(module).__name__ for module in found if hasattr(nn, type(module).__name__)})


def _drawn(module: nn.Module) -> bool:
    if isinstance(module, nn.MultiheadAttention):
        wide = [weight for name, weight in _own(module) if name.endswith("_weight")]
        bounds = [math.sqrt(6.0 / sum(weight.shape)) for weight in wide]
        flat = [weight for name, weight in _own(module) if name == "in_proj_bias"]
        odd = any(
            float(weight.abs().max()) > 1.01 * bound for weight, bound in zip(wide, bounds, strict=True)
        )
        return odd or any(bool(weight.any()) for weight in flat)
    return any(bool((weight != float(name == "weight")).any()) for name, weight in _own(module))


def _own(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return list(nn.Module.named_parameters(module, recurse=False))


def how_drawn(
    model: nn.Module, scheme: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], before: Untouched
) -> dict[str, Any]:
    """How the weights of a model were drawn anew.

    The kinds of layers that were, the names of those with weights by the scheme that was used, whether there are tables
    of biases, which were not, whether all parameters of the model were, the kinds that drew themselves, and weights
    that no layer holds with the deviation that each was drawn with.
    """
    kinds: set[str] = set()
    for module in model.modules():
        known = [kind.__name__ for kind in (*WEIGHTED, *_TABLES, *_RECURRENT) if isinstance(module, kind)]
        kinds.update(known[:1])
    schemes: dict[str, list[str]] = {}
    if scheme == "auto":
        anatomy = examine_model(model, args, kwargs)
        follows = {id(use.module): anatomy.activation_after(use) for use in reversed(anatomy.weighted)}
    for name, module in model.named_modules():
        if isinstance(module, WEIGHTED):
            used = fitting_scheme(follows.get(id(module), "none")) if scheme == "auto" else scheme
            schemes.setdefault(used, []).append(name)
    tables = any(is_bias_table(module) for module in model.modules())
    drawn = {id(p) for m in model.modules() if isinstance(m, (*WEIGHTED, *RECURRENT)) for p in m.parameters()}
    everything = all(id(parameter) in drawn for parameter in model.parameters())
    return {
        "kinds": sorted(kinds),
        "schemes": schemes,
        "bias_tables": tables,
        "everything": everything,
        "reset": before.reset,
        "bare": before.bare,
    }


def joined(known: dict[str, Any] | None, drawn: dict[str, Any], home: str) -> dict[str, Any]:
    """What was drawn of one model, together with the others of the same object where it is called ``home`` in that."""
    if not home:
        return drawn
    before = known or {
        "kinds": [],
        "schemes": {},
        "bias_tables": False,
        "everything": True,
        "reset": [],
        "bare": {},
    }
    schemes: dict[str, list[str]] = {scheme: list(names) for scheme, names in before["schemes"].items()}
    for scheme, names in drawn["schemes"].items():
        schemes.setdefault(scheme, []).extend(f"{home}.{name}".rstrip(".") for name in names)
    return {
        "kinds": sorted({*before["kinds"], *drawn["kinds"]}),
        "schemes": schemes,
        "bias_tables": before["bias_tables"] or drawn["bias_tables"],
        "everything": before["everything"] and drawn["everything"],
        "reset": sorted({*before["reset"], *drawn["reset"]}),
        "bare": {**before["bare"], **{f"{home}.{name}": spread for name, spread in drawn["bare"].items()}},
        "homes": [*before.get("homes", ()), home],
    }
