"""What the script itself does to its gradients: clipping too tight, functions that break them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from akeso.script.prescribed.edges import edge_met
from akeso.script.prescribed.functions import tensors
from akeso.script.prescribed.ledger import Ledger
from akeso.script.prescribed.part import Handler, Part
from akeso.script.prescribed.patching import patched
from akeso.script.prescribed.places import caller
from akeso.torch.attached import CUTTING, cuts
from akeso.torch.guards import GUARDED, guarded

if TYPE_CHECKING:
    from akeso.script.prescribed.operation import Operation

_CLIPPING = {"clip_grad_norm_": "max_norm", "clip_grad_value_": "clip_value"}


class Gradients(Part):
    """Lets the script's own clipping leave more, and keeps functions off the edge of their range."""

    remedies: ClassVar = {
        "unscale-gradients": "no gradients were clipped while they were multiplied by a loss scale",
        "loosen-clipping": "the script clips no gradients with a function of torch",
        "guard-functions": "the script takes no root, logarithm or quotient that a gradient flows through",
        "keep-attached": "no model of the script cuts anything off from the graph that could be kept",
    }

    def __init__(self, operation: Operation, ledger: Ledger) -> None:
        super().__init__(operation, ledger)
        self._scaler: Any = None  # while gradients are multiplied by its scale

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
        loosen, unscale = (self.ledger.one(name) for name in ("loosen-clipping", "unscale-gradients"))
        with ExitStack() as stack:
            for owner in (torch.nn.utils, torch.nn.utils.clip_grad) if loosen or unscale else ():
                for name, limit in _CLIPPING.items():
                    stack.enter_context(patched(owner, name, functools.partial(self._clip, limit)))
            if unscale is not None:
                stack.enter_context(patched(torch.amp.GradScaler, "scale", self._scaled))
                for name in ("unscale_", "update"):
                    stack.enter_context(patched(torch.amp.GradScaler, name, self._unscaled))
            yield

    def _clip(self, name: str, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        limit = kwargs.get(name, args[1] if len(args) > 1 else None)
        if limit is None:
            return original(*args, **kwargs)
        limit = self._limit(float(limit))
        if name in kwargs:
            kwargs[name] = limit
        else:
            args = (args[0], limit, *args[2:])
        return original(*args, **kwargs)

    def _limit(self, limit: float) -> float:
        """What to clip to instead; of gradients that are multiplied by a loss scale it is the limit times that."""
        loosen, unscale = (self.ledger.one(name) for name in ("loosen-clipping", "unscale-gradients"))
        if loosen is not None:
            limit = max(limit, float(loosen.values.get("to", 1.0)))
            self.ledger.mark(loosen)
        if unscale is not None and self._scaler is not None and self._scaler.is_enabled():
            limit *= self._scaler.get_scale()
            self.ledger.mark(unscale)
            self.ledger.place("clipped while scaled", caller(3))
        return limit

    def _scaled(self, original: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
        self._scaler = scaler
        return original(scaler, *args, **kwargs)

    def _unscaled(self, original: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
        self._scaler = None
        return original(scaler, *args, **kwargs)
