"""Giving activations that are called as functions a module of their own.

A ``forward`` that calls ``F.relu`` cannot be edited, but its calls can be counted: the n-th activation call
inside a module is always the same place. :func:`materialise` registers one submodule per place on the module
that owns it; from then on a torch function mode, active only while the model's own ``forward`` runs, sends
the n-th call there. The model stays an object of the user's class, prints its new parts, saves and loads.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from akeso.errors import Refused
from akeso.torch.surgery.activations import changes_in_place, make, name_of_call, name_of_module
from akeso.torch.surgery.anatomy import Site, Treated
from akeso.torch.surgery.modes import put_on, take_off

PREFIX = "akeso_activation_"


@dataclass(slots=True)
class _Frame:
    """A module call that is under way; ``module`` is None inside an activation, where nothing is counted."""

    module: nn.Module | None
    name: str = ""
    calls: int = 0
    stand_in: nn.Module | None = None
    argument: Tensor | None = None


@dataclass(slots=True)
class _Thread:
    """The module calls under way in one thread."""

    frames: list[_Frame] = field(default_factory=list)
    modes: list[_Sender] = field(default_factory=list)


class Rewiring:
    """Which activation calls go to which submodules; shared by the hooks of one model."""

    def __init__(self) -> None:
        self.places: dict[str, set[int]] = {}
        self._threads: dict[int, _Thread] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"places": self.places}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.places = state["places"]
        self._threads = {}

    def thread(self) -> _Thread:
        """The calls that are under way in this thread."""
        return self._threads.setdefault(threading.get_ident(), _Thread())

    def next_stand_in(self, frame: _Frame) -> nn.Module | None:
        """Count one activation call in a frame; the submodule that stands for it, if there is one."""
        index = frame.calls
        frame.calls += 1
        if frame.module is None or index not in self.places.get(frame.name, ()):
            return None
        found = getattr(frame.module, f"{PREFIX}{index}")
        return found if isinstance(found, nn.Module) else None


class _Sender(TorchFunctionMode):
    """Sends activation calls to the submodules that stand for them."""

    def __init__(self, rewiring: Rewiring) -> None:
        super().__init__()
        self.rewiring = rewiring

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        frames = self.rewiring.thread().frames
        if not frames or frames[-1].module is None or name_of_call(func, args, options) is None:
            return func(*args, **options)
        stand_in = self.rewiring.next_stand_in(frames[-1])
        if stand_in is None:
            return func(*args, **options)
        frames.append(_Frame(None))
        try:
            if not changes_in_place(func, args, options):
                return stand_in(args[0])
            # The argument must change too; autograd needs the old values, so a copy is worked on.
            return args[0].copy_(stand_in(args[0].clone()))
        finally:
            frames.pop()


class _Hook:
    """A hook that knows its rewiring; plain attributes, so that models can be copied and saved whole."""

    def __init__(self, rewiring: Rewiring, name: str = "") -> None:
        self.rewiring = rewiring
        self.name = name


class _Open(_Hook):
    """Before the model's forward: the mode goes on."""

    def __call__(self, module: nn.Module, args: Any) -> None:
        mode = _Sender(self.rewiring)
        put_on(mode)
        self.rewiring.thread().modes.append(mode)


class _Shut(_Hook):
    """After the model's forward, also when it raised: the mode goes off."""

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        thread = self.rewiring.thread()
        if thread.modes:
            # A watch may have put a mode of its own on top since.
            take_off(thread.modes.pop())
        if not thread.modes:
            thread.frames.clear()


class _Enter(_Hook):
    """Before the forward of a module inside the model."""

    def __call__(self, module: nn.Module, args: Any) -> None:
        self.rewiring.thread().frames.append(_Frame(module, self.name))


class _Leave(_Hook):
    """After the forward of a module inside the model."""

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        frames = self.rewiring.thread().frames
        if frames and frames[-1].module is module:
            frames.pop()


class _EnterActivation(_Hook):
    """Before an activation module: it counts once, where it is called."""

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        frames = self.rewiring.thread().frames
        stand_in = self.rewiring.next_stand_in(frames[-1]) if frames else None
        if stand_in is None:
            frames.append(_Frame(None))
            return None
        frames.append(_Frame(None, stand_in=stand_in, argument=args[0]))
        # The module itself still runs; what it may write into is a copy.
        return (args[0].clone(), *args[1:])


class _LeaveActivation(_Hook):
    """After an activation module: its stand-in answers where there is one."""

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        frames = self.rewiring.thread().frames
        if not frames:
            return None
        frame = frames[-1]
        try:
            return None if frame.stand_in is None else frame.stand_in(frame.argument)
        finally:
            frames.pop()


def rewiring_of(model: nn.Module) -> Rewiring | None:
    """The rewiring that is already on a model."""
    for hook in model._forward_pre_hooks.values():
        if isinstance(hook, _Open):
            return hook.rewiring
    return None


def _install(model: nn.Module) -> Rewiring:
    rewiring = Rewiring()
    model.register_forward_pre_hook(_Open(rewiring))
    for name, module in model.named_modules():
        if _counts_once(module):
            _hook_activation(rewiring, module)
            continue
        module.register_forward_pre_hook(_Enter(rewiring, name))
        module.register_forward_hook(_Leave(rewiring), always_call=True)
    model.register_forward_hook(_Shut(rewiring), always_call=True)
    return rewiring


def _counts_once(module: nn.Module) -> bool:
    return isinstance(module, Treated) or name_of_module(module) is not None


def _hook_activation(rewiring: Rewiring, module: nn.Module) -> None:
    module.register_forward_pre_hook(_EnterActivation(rewiring))
    module.register_forward_hook(_LeaveActivation(rewiring), always_call=True)


def materialise(model: nn.Module, sites: Sequence[Site]) -> list[str]:
    """Register a submodule for every site; return the submodules' qualified names, in the order of the sites.

    Sites are function calls, or calls of one module at several places each of which needs its own successor.
    """
    if type(model).__name__ == "OptimizedModule":
        raise Refused("activations that are called as functions inside a compiled model cannot be reached")
    rewiring = rewiring_of(model) or _install(model)
    names = []
    for site in sites:
        owner = model.get_submodule(site.owner)
        attribute = f"{PREFIX}{site.index}"
        if not hasattr(owner, attribute):
            owner.add_module(attribute, _stand_in(model, site))
        rewiring.places.setdefault(site.owner, set()).add(site.index)
        names.append(".".join(part for part in (site.owner, attribute) if part))
    return names


def _stand_in(model: nn.Module, site: Site) -> nn.Module:
    if not site.module:
        return make(site.kind)
    module = model.get_submodule(site.module)
    if any(True for _ in module.parameters()):
        raise Refused(f"{site.module} has weights of its own that several places share")
    twin = copy.deepcopy(module)
    twin._forward_pre_hooks.clear()
    twin._forward_hooks.clear()
    twin._forward_hooks_always_called.clear()
    return twin


def replace(model: nn.Module, name: str, new: nn.Module) -> None:
    """Put a module in an activation's place, under the same name, with its mode."""
    parent_name, _, attribute = name.rpartition(".")
    parent = model.get_submodule(parent_name)
    new.train(parent._modules[attribute].training)  # type: ignore[union-attr]
    parent._modules[attribute] = new
    rewiring = rewiring_of(model)
    if rewiring is not None and not attribute.startswith(PREFIX) and not isinstance(parent, Treated):
        _hook_activation(rewiring, new)
