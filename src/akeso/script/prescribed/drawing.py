"""How new weights were drawn, layer by layer, so that the change to a script can draw them alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from akeso.torch.surgery.anatomy import WEIGHTED, examine_model
from akeso.torch.surgery.initialisation import fitting_scheme, is_bias_table

_TABLES = (nn.Embedding, nn.EmbeddingBag)


def how_drawn(
    model: nn.Module, scheme: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The kinds of layers that were drawn anew, the names of those with weights by the scheme that was used, whether
    there are tables of biases, which were not, and whether all parameters of the model were."""
    kinds: set[str] = set()
    for module in model.modules():
        known = [kind.__name__ for kind in (*WEIGHTED, *_TABLES, nn.RNNBase) if isinstance(module, kind)]
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
    drawn = {id(p) for m in model.modules() if isinstance(m, (*WEIGHTED, nn.RNNBase)) for p in m.parameters()}
    everything = all(id(parameter) in drawn for parameter in model.parameters())
    return {"kinds": sorted(kinds), "schemes": schemes, "bias_tables": tables, "everything": everything}


def joined(known: dict[str, Any] | None, drawn: dict[str, Any], home: str) -> dict[str, Any]:
    """What was drawn of one model, together with the others of the same object where it is called ``home`` in that."""
    if not home:
        return drawn
    before = known or {"kinds": [], "schemes": {}, "bias_tables": False, "everything": True}
    schemes: dict[str, list[str]] = {scheme: list(names) for scheme, names in before["schemes"].items()}
    for scheme, names in drawn["schemes"].items():
        schemes.setdefault(scheme, []).extend(f"{home}.{name}".rstrip(".") for name in names)
    return {
        "kinds": sorted({*before["kinds"], *drawn["kinds"]}),
        "schemes": schemes,
        "bias_tables": before["bias_tables"] or drawn["bias_tables"],
        "everything": before["everything"] and drawn["everything"],
        "homes": [*before.get("homes", ()), home],
    }
