"""Where norms and shortcuts were put into a model, so that the change to a script can put them there, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from akeso.script.prescribed.places import Place, caller
from akeso.torch.surgery.anatomy import NORMS, Anatomy, Site, Treated, Use, examine_model
from akeso.torch.surgery.rewiring import PREFIX


class Before:
    """A model as it is before surgery: its layers and activations with the lines that make and call them."""

    def __init__(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._anatomy: Anatomy = examine_model(model, args, kwargs, locate=caller)
        self._modules = {
            name: (type(module).__name__, _made(module)) for name, module in model.named_modules()
        }
        self._directly = {
            name for name, module in model.named_modules() if module.__dict__.get("_akeso_made_directly")
        }

    def norms_in(self, model: nn.Module) -> list[dict[str, Any]]:
        """Every norm that was put in since, as plain JSON values: its name, how it is made, what it goes with."""
        found = [self._at_activation(model, site) for site in self._anatomy.hidden()]
        found += [self._behind_layer(model, use) for use in self._anatomy.uses]
        return [one for one in found if one is not None]

    def shortcuts_in(self, model: nn.Module) -> list[dict[str, Any]]:
        """Every shortcut around a layer and its activation that was put in since."""
        pairs = [(use, self._anatomy.site_after(use)) for use in self._anatomy.weighted]
        found = [self._around(model, use, site) for use, site in pairs if site is not None]
        return [one for one in found if one is not None]

    def _around(self, model: nn.Module, use: Use, site: Site) -> dict[str, Any] | None:
        gain = getattr(use.module, "akeso_gain", None)
        if not isinstance(gain, nn.Parameter):
            return None
        own = f"{site.owner}.{PREFIX}{site.index}".lstrip(".")
        in_place = bool(site.module) and own not in dict(model.named_modules())
        kind, made = self._modules.get(site.module, ("", None))
        return {
            "name": f"{use.name}.akeso_gain",
            "owner": site.owner,
            "layer": use.name,
            "activation": site.module if in_place else "",
            "called": kind if in_place else (site.module or site.name.split("#")[0]).rpartition(".")[2],
            "of_module": bool(site.module),
            "gain": float(gain.detach()),
            "how": "in place" if in_place else "before",
            "place": _dict(made if in_place else site.place),
            **self._among_its_line(site.module, made if in_place else None),
        }

    def _at_activation(self, model: nn.Module, site: Site) -> dict[str, Any] | None:
        own = f"{site.owner}.{PREFIX}{site.index}".lstrip(".")
        name = next((name for name in (own, site.module) if name and _is_treated(model, name)), None)
        if name is None:
            return None
        in_place = name == site.module
        kind, made = self._modules.get(site.module, ("", None))
        return {
            **_described(model.get_submodule(f"{name}.0"), site.after.module if site.after else None),
            "name": f"{name}.0",
            "owner": site.owner,
            "layer": site.after.name if site.after else "",
            "called": kind if in_place else (site.module or site.name.split("#")[0]).rpartition(".")[2],
            "of_module": bool(site.module),
            "how": "in place" if in_place else "before",
            "place": _dict(made if in_place else site.place),
            **self._among_its_line(site.module, made if in_place else None),
        }

    def _among_its_line(self, name: str, made: Place | None) -> dict[str, int | bool]:
        """How many activations the line makes that makes one of them, the number of this one, and who makes it."""
        together = [other for other, (_, place) in self._modules.items() if place == made is not None]
        return {
            "made_there": len(together) or 1,
            "number_there": together.index(name) if together else 0,
            "made_directly": name in self._directly,
        }

    def _behind_layer(self, model: nn.Module, use: Use) -> dict[str, Any] | None:
        norm = getattr(use.module, "akeso_norm", None)
        if not isinstance(norm, nn.Module):
            return None
        owner, _, called = use.name.rpartition(".")
        return {
            **_described(norm, None),
            "name": f"{use.name}.akeso_norm",
            "owner": owner,
            "layer": use.name,
            "called": called,
            "of_module": True,
            "how": "of outputs" if isinstance(use.module, nn.RNNBase) else "behind",
            "place": _dict(use.place),
            **self._among_its_line("", None),
        }


def _is_treated(model: nn.Module, name: str) -> bool:
    try:
        found = model.get_submodule(name)
    except AttributeError:
        return False
    return isinstance(found, Treated) and isinstance(found[0], NORMS)


def _described(norm: nn.Module, layer: nn.Module | None) -> dict[str, Any]:
    """The class of a norm, what it is given before its width, its width, and what the layer calls the same width."""
    width = _width(norm)
    named = [name for name in ("out_features", "out_channels") if getattr(layer, name, None) == width]
    kind = nn.GroupNorm if isinstance(norm, nn.GroupNorm) else type(norm)
    return {
        "norm": kind.__name__,
        "groups": [norm.num_groups] if isinstance(norm, nn.GroupNorm) else [],
        "width": width,
        "width_name": named[0] if named else "",
    }


def _width(norm: Any) -> int:
    for name in ("num_features", "num_channels"):
        if hasattr(norm, name):
            return int(getattr(norm, name))
    return int(norm.normalized_shape[-1])


def _made(module: nn.Module) -> Place | None:
    made = module.__dict__.get("_akeso_made")
    return made if isinstance(made, Place) else None


def _dict(place: Place | None) -> dict[str, Any] | None:
    return place.to_dict() if place is not None else None
