"""Normalisation in front of activations, and behind recurrent and gated layers."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from akeso.errors import BadInput, Refused
from akeso.torch.surgery.anatomy import CONVOLUTIONS, Anatomy, Treated, once_each
from akeso.torch.surgery.rewiring import replace
from akeso.torch.surgery.substitution import module_names

KINDS = ("batch", "layer", "group")


class ChannelLayerNorm(nn.GroupNorm):
    """Layer normalisation over channels and positions of one sample."""

    def __init__(self, channels: int) -> None:
        super().__init__(1, channels)


def insert_normalisation(model: nn.Module, anatomy: Anatomy, kind: str) -> tuple[str, list[nn.Parameter]]:
    """Put a norm in front of every hidden activation; say what was done, and give the new parameters."""
    if kind not in KINDS:
        raise BadInput(f"kind must be one of {', '.join(KINDS)}, but got {kind!r}.")
    bare = (site for site in anatomy.hidden() if not site.normalised)
    sites = once_each(site for site in bare if len(site.shape) > 1)
    new: list[nn.Parameter] = []
    for site, name in zip(sites, module_names(model, sites, anatomy.sites, one_each=True), strict=True):
        layer = None if site.after is None else site.after.module
        norm = _norm_for(kind, site.shape, layer).to(device=site.device, dtype=site.dtype)
        activation = model.get_submodule(name)
        _drop_hooks(activation)
        replace(model, name, Treated(norm, activation))
        new += norm.parameters()
    recurrent = _after_recurrent(anatomy)
    gated = [] if anatomy.hidden() else _after_gated(anatomy, kind)
    new += recurrent + gated
    if not sites and not recurrent and not gated:
        reason = (
            "every hidden activation is normalised already"
            if anatomy.hidden()
            else "no hidden activation seen"
        )
        raise Refused(f"{reason}, so there is no place for a norm")
    places = [f"before {len(sites)} activations"] if sites else []
    places += ["after recurrent layers"] if recurrent else []
    places += ["after gated layers"] if gated else []
    return f"{kind} normalisation {' and '.join(places)}", new


def _norm_for(kind: str, shape: tuple[int, ...], layer: nn.Module | None) -> nn.Module:
    """The norm that fits a tensor of this shape behind a layer.

    Features of the steps of a sequence, or of the points of a set, are normalised one by one, as is usual there:
    batches share no statistics over places.
    """
    channels_first = len(shape) > 3 or (len(shape) == 3 and isinstance(layer, CONVOLUTIONS))
    features = shape[1] if channels_first else shape[-1]
    if kind == "batch" and (channels_first or len(shape) == 2):
        classes: dict[int, Any] = {
            2: nn.BatchNorm1d,
            3: nn.BatchNorm1d,
            4: nn.BatchNorm2d,
            5: nn.BatchNorm3d,
        }
        built: nn.Module = classes[len(shape)](features)
        return built
    if not channels_first:
        return nn.LayerNorm(features)
    if kind == "layer":
        return ChannelLayerNorm(features)
    groups = max(
        size
        for size in range(1, min(32, features) + 1)
        if size == 1 or (features % size == 0 and features // size >= 2)
    )
    return nn.GroupNorm(groups, features)


class _AfterRecurrent:
    """Normalises the outputs of a recurrent layer over features, step by step."""

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        first = output[0]
        if not isinstance(first, Tensor):
            return None  # a packed sequence has no features in the last place
        norm: Any = module.akeso_norm
        return (norm(first), *output[1:])


def _after_recurrent(anatomy: Anatomy) -> list[nn.Parameter]:
    """Layer normalisation of every recurrent layer's outputs: batches share no statistics over time."""
    new: list[nn.Parameter] = []
    for use in anatomy.uses:
        module = use.module
        if not isinstance(module, nn.RNNBase) or hasattr(module, "akeso_norm"):
            continue
        weight = next(module.parameters())
        width = (module.proj_size or module.hidden_size) * (2 if module.bidirectional else 1)
        norm = nn.LayerNorm(width).to(device=weight.device, dtype=weight.dtype)
        norm.train(module.training)
        module.add_module("akeso_norm", norm)
        module.register_forward_hook(_AfterRecurrent())
        new += norm.parameters()
    return new


class _AfterLayer:
    """Normalises what a layer gives, before it is split into values and gates."""

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        norm: Any = module.akeso_norm
        return norm(output)


def _after_gated(anatomy: Anatomy, kind: str) -> list[nn.Parameter]:
    """A norm behind every layer whose output only gates take: activations there must keep their meaning."""
    new: list[nn.Parameter] = []
    ends = [*(use.order for use in anatomy.weighted), 1 << 60]
    for use, end in zip(anatomy.weighted, ends[1:], strict=True):
        module = use.module
        gates = [site for site in anatomy.sites if site.role == "gate" and use.order < site.order < end]
        if not gates or hasattr(module, "akeso_norm") or len(use.output_shape) < 2:
            continue
        if any(site.normalised for site in gates) or use in anatomy.last_layers():
            continue
        weight = next(module.parameters())
        norm = _norm_for(kind, use.output_shape, module).to(device=weight.device, dtype=weight.dtype)
        norm.train(module.training)
        module.add_module("akeso_norm", norm)
        module.register_forward_hook(_AfterLayer())
        new += norm.parameters()
    return new


def _drop_hooks(activation: nn.Module) -> None:
    """The hooks of the rewiring belong to the place, which the new module takes."""
    from akeso.torch.surgery.rewiring import _EnterActivation, _LeaveActivation

    for table, kind in (
        (activation._forward_pre_hooks, _EnterActivation),
        (activation._forward_hooks, _LeaveActivation),
    ):
        for key in [key for key, hook in table.items() if isinstance(hook, kind)]:
            del table[key]
            activation._forward_hooks_always_called.pop(key, None)
