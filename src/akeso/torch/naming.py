"""Which models there are and what their modules and parameters are called."""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from akeso.torch.keras import layers as keras

#: What wrappers put in front of the names of what they wrap.
_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module)\.")

#: How far up it is looked for the code that calls a module.
_FRAMES = 12

NORMS = (
    nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.LocalResponseNorm,
)  # fmt: skip
DROPOUTS = (nn.modules.dropout._DropoutNd,)


def unwrap(module: nn.Module) -> nn.Module:
    """The user's own module under data-parallel and compile wrappers."""
    while True:
        if isinstance(module, nn.parallel.DistributedDataParallel | nn.DataParallel):
            module = module.module
        elif "_orig_mod" in module._modules and module._modules["_orig_mod"] is not None:
            module = module._orig_mod  # type: ignore[assignment]
        else:
            return module


def parameters_of(module: nn.Module, *, recurse: bool = True) -> Iterator[nn.Parameter]:
    """The parameters as torch knows them: a module's own ``parameters`` may give others, and take no arguments."""
    return (parameter for _, parameter in named_parameters(module, recurse=recurse))


def named_parameters(module: nn.Module, *, recurse: bool = True) -> Iterator[tuple[str, nn.Parameter]]:
    """The same with their names."""
    if keras.is_layer(module):
        return keras.named_weights(module, recurse=recurse)
    return nn.Module.named_parameters(module, recurse=recurse)


def named_modules(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The module and everything in it by name."""
    return keras.named_layers(root) if keras.is_layer(root) else root.named_modules()


def modules_of(root: nn.Module) -> Iterator[nn.Module]:
    """The module and everything in it."""
    return (module for _, module in named_modules(root))


def is_compiled(module: nn.Module) -> bool:
    """Whether the module or a part of it runs as compiled code, in which hooks must not change."""
    return any("_orig_mod" in part._modules or _compiled_in_place(part) for part in module.modules())


def _compiled_in_place(module: nn.Module) -> bool:
    """Whether a call of the module runs compiled code; one whose compilation is switched off keeps its own."""
    call = getattr(module, "_compiled_call_impl", None)
    return call is not None and getattr(call, "__func__", None) is not nn.Module._call_impl


def dropout_of(module: nn.Module) -> float | None:
    """The share that a module drops; ``None`` for one that drops nothing."""
    if isinstance(module, DROPOUTS):
        return float(module.p)
    return keras.dropped_by(module) if keras.is_layer(module) else None


class Names:
    """The root modules seen so far and the names under them.

    One root gives plain names (``"net.0.weight"``); with several, each is prefixed by its class. Once readings go by a
    name, it stays: roots that are met later, such as an averaged copy for validation, leave the others' as they are.
    """

    def __init__(self) -> None:
        self._roots: list[weakref.ref[nn.Module]] = []
        self._bare: list[weakref.ref[nn.Module]] = []  # roots that had no parameters when they were given
        self._labels: list[str] = []
        self._prefixes: list[str] = []
        self._settled = False
        self._modules: dict[int, str] = {}
        self._parameters: dict[int, str] = {}
        self._strangers = 0
        self._listed: list[tuple[str, weakref.ref[nn.Parameter]]] = []
        self._outside: dict[int, weakref.ref[nn.Module]] = {}
        self._drawn: list[tuple[str, weakref.ref[nn.Module]]] = []

    @property
    def roots(self) -> Iterator[nn.Module]:
        """The live roots."""
        for reference in self._roots:
            root = reference()
            if root is not None:
                yield root

    @property
    def labels(self) -> list[str]:
        """What the roots are called."""
        return list(self._labels)

    def add(self, root: nn.Module, called: str = "") -> bool:
        """Take in a root; ``False`` when it, or something it is part of, is known already.

        Where its class says little, it goes by what the script has ``called`` it.
        """
        root = unwrap(root)
        if id(root) in self._modules or not any(True for _ in parameters_of(root)):
            return False
        inside = [index for index, other in enumerate(self._roots) if _contains(root, other())]
        for index in reversed(inside):  # what was taken for a model was a part of this one, or is no more
            if not self._settled or self._roots[index]() is None:
                del self._roots[index], self._labels[index], self._prefixes[index]
        label = type(root).__name__
        if called and called not in self._labels and (label in self._labels or _is_torchs(type(root))):
            label = called
        if label in self._labels:
            label = f"{label}{sum(other.startswith(label) for other in self._labels) + 1}"
        self._roots.append(weakref.ref(root))
        self._labels.append(label)
        self._prefixes.append(label)
        if not self._settled:
            self._prefixes = [""] if len(self._labels) == 1 else list(self._labels)
        self._rename()
        return True

    def settle(self) -> None:
        """Readings go by these names from now on."""
        self._settled = bool(self._roots)

    def expect(self, root: nn.Module) -> None:
        """Take in a root, now or as soon as it has parameters: models of Keras make theirs when they first run."""
        if not any(True for _ in parameters_of(root)):
            self._bare.append(weakref.ref(root))
        self.add(root)

    def awaited(self, root: nn.Module) -> bool:
        """Whether a root was given before it had parameters."""
        return any(reference() is root for reference in self._bare)

    def _rename(self) -> None:
        self._modules.clear()
        self._parameters.clear()
        self._listed.clear()
        for reference, prefix in zip(self._roots, self._prefixes, strict=True):
            root = reference()
            if root is None:
                continue
            for name, module in named_modules(root):
                self._modules.setdefault(id(module), _join(prefix, name))
            for name, parameter in named_parameters(root):
                if id(parameter) not in self._parameters:
                    full = self._parameters[id(parameter)] = _join(prefix, name)
                    self._listed.append((full, weakref.ref(parameter)))

    def module(self, module: nn.Module) -> str | None:
        """The module's name, ``None`` for a stranger (``""`` is the only root)."""
        return self._modules.get(id(module))

    def parameter(self, parameter: torch.Tensor) -> str:
        """The parameter's name; one that belongs to no known module gets a number."""
        name = self._parameters.get(id(parameter))
        if name is None:
            name = f"parameter{self._strangers}"
            self._strangers += 1
            self._parameters[id(parameter)] = name
        return name

    def known(self, parameter: torch.Tensor) -> bool:
        """Whether the parameter belongs to a root or has been numbered."""
        return id(parameter) in self._parameters

    def parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Every parameter of every root, once."""
        for name, reference in self._listed:
            parameter = reference()
            if parameter is not None:
                yield name, parameter

    def meet(self, module: nn.Module) -> None:
        """A module with parameters runs inside a root and is no part of it, as torch sees it."""
        known = self._outside.get(id(module))
        if known is not None and known() is module:
            return
        if any(_contains(root, module) for root in self.roots):
            self._rename()  # it was put into its root after we had learnt the names
            return
        self._outside[id(module)] = weakref.ref(module)
        matrix = max(
            (p for p in parameters_of(module, recurse=False) if p.dim() > 1), key=torch.numel, default=None
        )
        if (
            matrix is not None
            and matrix.requires_grad
            and torch.is_grad_enabled()
            and not self._copied(matrix)
        ):
            sizes = ", ".join(map(str, matrix.shape))
            self._drawn.append((f"{type(module).__name__}({sizes})", self._outside[id(module)]))

    def _copied(self, matrix: torch.Tensor) -> bool:
        """Whether a matrix is that of a root once more: a copy of it is trained for a moment, say."""
        return any(p.shape == matrix.shape and torch.equal(p, matrix) for _, p in self.parameters())

    def gone(self) -> set[str]:
        """Modules with random weights of their own that ran inside a root since the last call and are no more."""
        drawn, self._drawn = self._drawn, []
        for known in [known for known, reference in self._outside.items() if reference() is None]:
            del self._outside[known]
        return {description for description, reference in drawn if reference() is None}

    def outside(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The parameters of modules that ran inside a root without being part of one."""
        for number, reference in enumerate(self._outside.values()):
            module = reference()
            if module is None or id(module) in self._modules:
                continue
            for name, parameter in named_parameters(module, recurse=False):
                yield f"{type(module).__name__}{number}.{name}", parameter

    def modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Every module of every root, once."""
        seen: set[int] = set()
        for root in self.roots:
            for module in modules_of(root):
                if id(module) not in seen:
                    seen.add(id(module))
                    yield self._modules.get(id(module), ""), module


def called_as(module: nn.Module) -> str:
    """What the code that is calling a module has it under: an attribute of its ``self``, or a variable; or nothing."""
    frame = sys._getframe(1)
    for _ in range(_FRAMES):
        if not str(frame.f_globals.get("__name__", "")).startswith(("torch.", "akeso.", "keras.")):
            known = frame.f_locals
            owner = known.get("self")
            parts = nn.Module.named_modules(owner) if isinstance(owner, nn.Module) else _vars(owner).items()
            names = [
                name for name, part in (*parts, *known.items()) if part is module and name not in ("", "self")
            ]
            if names:
                return str(names[0])
        if frame.f_back is None:
            break
        frame = frame.f_back
    return ""


def _vars(thing: Any) -> dict[str, Any]:
    """The attributes of an object, as far as it keeps them in a dict."""
    return getattr(thing, "__dict__", {})


def _is_torchs(kind: type) -> bool:
    return kind.__module__.startswith(("torch.", "keras."))


def _contains(root: nn.Module, other: nn.Module | None) -> bool:
    return other is None or any(part is other for part in modules_of(root))


def _join(prefix: str, name: str) -> str:
    name = _WRAPPERS.sub("", name)
    return f"{prefix}.{name}" if prefix and name else prefix or name


def role_of(module: nn.Module) -> str:
    """What part a module plays, in a word."""
    if keras.is_layer(module):
        return keras.role_of(module)
    kinds: Iterable[tuple[Any, str]] = (
        (NORMS, "norm"),
        (DROPOUTS, "dropout"),
        ((nn.Embedding, nn.EmbeddingBag), "embedding"),
        ((nn.RNNBase, nn.RNNCellBase), "recurrent"),
        ((nn.MultiheadAttention,), "attention"),
        ((nn.modules.conv._ConvNd,), "convolution"),
        ((nn.Linear, nn.Bilinear), "linear"),
    )
    for classes, role in kinds:
        if isinstance(module, classes):
            return role
    return ""
