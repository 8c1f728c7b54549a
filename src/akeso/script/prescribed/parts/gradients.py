"""What the script itself does to its gradients: clipping too tight, functions that break them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

import torch

from akeso.remedies.edit import Edit
from akeso.script.prescribed.edges import edge_met
from akeso.script.prescribed.functions import tensors
from akeso.script.prescribed.part import Handler, Part
from akeso.script.prescribed.patching import patched
from akeso.script.prescribed.places import caller
from akeso.torch.attached import CUTTING, cuts
from akeso.torch.guards import GUARDED, guarded

_CLIPPING = {"clip_grad_norm_": "max_norm", "clip_grad_value_": "clip_value"}


class Gradients(Part):
    """Lets the script's own clipping leave more, and keeps functions off the edge of their range."""

    remedies: ClassVar = {
        "loosen-clipping": "the script clips no gradients with a function of torch",
        "guard-functions": "the script takes no root, logarithm or quotient that a gradient flows through",
        "keep-attached": "no model of the script cuts anything off from the graph that could be kept",
    }

    def handlers(self) -> dict[str, Handler]:
        """The guarded functions and those that cut, where that is asked for."""
        guards = self.ledger.one("guard-functions") is not None
        attaches = self.ledger.one("keep-attached") is not None
        return {
            **(dict.fromkeys(GUARDED, self._guard) if guards else {}),
            **(dict.fromkeys(CUTTING, self._attach) if attaches else {}),
        }

    def _attach(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        edit = self.ledger.one("keep-attached")
        if edit is None or not self.operation.inside_model or not cuts(func, args):
            return func(*args, **kwargs)
        self.ledger.mark(edit)
        self.ledger.place("cut", caller(2))
        return args[0]

    def _guard(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        edit = self.ledger.one("guard-functions")
        flows = any(tensor.requires_grad for tensor in tensors(args, kwargs)) and torch.is_grad_enabled()
        if edit is None or not (flows or self.operation.inside_model):
            return func(*args, **kwargs)
        self.ledger.mark(edit)
        kind = edge_met(func, args, kwargs)
        if kind:
            self.ledger.place(f"edge of {kind}", caller(2))
        return guarded(func, args, kwargs)

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Clipping functions by whatever name the script has them: imported before or after."""
        edit = self.ledger.one("loosen-clipping")
        with ExitStack() as stack:
            if edit is not None:
                for owner in (torch.nn.utils, torch.nn.utils.clip_grad):
                    for name, limit in _CLIPPING.items():
                        clip = functools.partial(self._clip, edit, limit)
                        stack.enter_context(patched(owner, name, clip))
            yield

    def _clip(self, edit: Edit, name: str, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        least = float(edit.values.get("to", 1.0))
        if name in kwargs:
            kwargs[name] = max(float(kwargs[name]), least)
        elif len(args) > 1:
            args = (args[0], max(float(args[1]), least), *args[2:])
        self.ledger.mark(edit)
        return original(*args, **kwargs)
