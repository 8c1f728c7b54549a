"""Another activation function between layers or at the output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from akeso.errors import Refused
from akeso.remedies.edit import EVERYTHING
from akeso.torch.surgery.activations import make
from akeso.torch.surgery.anatomy import Anatomy, Site, Treated, once_each
from akeso.torch.surgery.attachment import attach_back
from akeso.torch.surgery.bypass import bypass
from akeso.torch.surgery.rewiring import materialise, replace


def substitute_activation(model: nn.Module, anatomy: Anatomy, where: str, new: str, old: str = "") -> str:
    """Put the activation ``new`` at the hidden sites, at the output, or at one site; say what was done.

    ``old`` narrows the hidden sites to those of one kind; of the output "everything" means whatever comes after the
    last layer, known as an activation or not.
    """
    if where == "output" and old == EVERYTHING:
        return bypass(model, anatomy, new)
    if where == "output":
        return _substitute_output(model, anatomy, new)
    if where in ("", "hidden"):
        sites = anatomy.hidden()
        chosen = [site for site in sites if not old or site.kind == old] or sites
    else:
        chosen = [site for site in anatomy.sites if site.name == where or site.module == where]
    recurrent = _substitute_recurrent(anatomy, new) if where in ("", "hidden") else 0
    if not chosen and not recurrent:
        raise Refused(
            f"no activation was seen {'between layers' if where in ('', 'hidden') else 'at ' + where}"
        )
    if chosen and all(site.kind == new for site in chosen) and not recurrent:
        raise Refused(f"the activations are {new} already")
    for name in module_names(model, chosen, anatomy.sites):
        replace(model, name, _fresh(new))
    return f"{len(chosen) + recurrent} activations are now {new}"


def module_names(
    model: nn.Module, sites: Sequence[Site], among: Sequence[Site], *, one_each: bool = False
) -> list[str]:
    """The qualified names of the modules at the sites; functions are given modules first.

    So is one that is called at other places of the model, too (``among`` are all of them): these keep it. With
    ``one_each`` a module that is called at several of the sites is given one successor per site. A place that is passed
    more than once is one site.
    """
    sites = once_each(sites)
    calls = Counter(site.module for site in sites if site.module)
    everywhere = Counter(site.module for site in once_each(among) if site.module)
    own = [
        site
        for site in sites
        if site.module
        and everywhere[site.module] == calls[site.module]
        and not (one_each and calls[site.module] > 1)
    ]
    made = materialise(model, [site for site in sites if site not in own]) if len(own) < len(sites) else []
    names = iter(made)
    found: list[str] = []
    for site in sites:
        name = site.module if site in own else next(names)
        if name not in found:
            found.append(name)
    return found


def _fresh(name: str) -> nn.Module:
    return Treated(nn.Identity()) if name in ("none", "Identity") else make(name)


def _substitute_recurrent(anatomy: Anatomy, new: str) -> int:
    """Plain recurrent layers know two functions; LSTM and GRU have gates, which stay."""
    modes = {"ReLU": "relu", "Tanh": "tanh"}
    done = 0
    for use in anatomy.uses:
        module: Any = use.module
        if (
            new not in modes
            or not isinstance(module, nn.RNN | nn.RNNCell)
            or module.nonlinearity == modes[new]
        ):
            continue
        module.nonlinearity = modes[new]
        if isinstance(module, nn.RNN):
            module.mode = f"RNN_{modes[new].upper()}"
        done += 1
    return done


def _substitute_output(model: nn.Module, anatomy: Anatomy, new: str) -> str:
    sites = anatomy.outputs()
    if sites:
        # Of several functions in a row at the output all but the last become nothing.
        names = module_names(model, sites, anatomy.sites)
        heads = max(1, len(anatomy.last_layers()))
        for position, name in enumerate(names):
            keep = heads > 1 or position == len(names) - 1
            replace(model, name, _fresh(new if keep else "none"))
        return f"output {', '.join(dict.fromkeys(site.kind for site in sites))} is now {new}"
    if new in ("none", "Identity"):
        raise Refused("no activation was seen at the output")
    if not isinstance(anatomy.output, Tensor):
        raise Refused("the model's output is not one tensor, so no activation can be put on it")
    attach_back(model, "akeso_output", make(new))
    return f"{new} was put at the output"
