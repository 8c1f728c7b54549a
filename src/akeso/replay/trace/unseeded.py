"""Where the global generators are drawn from before anybody has seeded them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from akeso.replay.trace.lines import calling_frame, is_own, place

_PYTHON = (
    "random", "randint", "randrange", "choice", "choices", "shuffle", "sample", "uniform", "gauss",
    "normalvariate", "betavariate", "expovariate", "getrandbits", "triangular",
)  # fmt: skip
_NUMPY = (
    "rand", "randn", "randint", "random", "random_sample", "choice", "shuffle", "permutation", "uniform",
    "normal", "standard_normal", "beta", "binomial", "poisson", "exponential", "multinomial",
)  # fmt: skip


class Unseeded:
    """Notes, for Python's, NumPy's and torch's global generator, the first line that draws before a seed.

    Values are not changed. Only draws that come from the program or from a library it calls are seen; the
    standard library's own (names of temporary files) do not use the global generators.
    """

    def __init__(self) -> None:
        self.draws: dict[str, str] = {}
        """``file:line`` of the first unseeded draw, by generator."""
        self._undo: list[Callable[[], None]] = []
        self._mode: _Draws | None = None
        self._start: dict[str, Any] = {}

    def start(self) -> None:
        """Wrap the drawing functions."""
        self._start = {
            "python": random.getstate()[1][:2],
            "numpy": _numpy_state(),
            "torch": torch.initial_seed(),
        }
        for name in _PYTHON:
            self._wrap(random, name, "python")
        for name in _NUMPY:
            self._wrap(np.random, name, "numpy")
        self._mode = _Draws(self)
        self._mode.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Put everything back."""
        for undo in reversed(self._undo):
            undo()
        self._undo = []
        self._leave()

    def _leave(self) -> None:
        mode, self._mode = self._mode, None
        if mode is not None:
            mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def _wrap(self, owner: Any, name: str, generator: str) -> None:
        original = getattr(owner, name)
        drawn: dict[str, bool] = {}

        def draw(*arguments: Any, **named: Any) -> Any:
            if not drawn:
                drawn["once"] = True
                self.note(generator)
            return original(*arguments, **named)

        draw.__name__ = name
        setattr(owner, name, draw)
        self._undo.append(lambda: setattr(owner, name, original))

    def note(self, generator: str) -> None:
        """A draw is about to happen; keep its line when the generator still has its state from the start."""
        if generator in self.draws or not self._untouched(generator):
            return
        frame = calling_frame(3)
        while frame is not None and not is_own(frame.f_code.co_filename):
            frame = frame.f_back
        self.draws[generator] = place(frame)

    def _untouched(self, generator: str) -> bool:
        if generator == "torch":
            return bool(torch.initial_seed() == self._start["torch"])
        if generator == "numpy":
            return bool(_numpy_state() == self._start["numpy"])
        return bool(random.getstate()[1][:2] == self._start["python"])


class _Draws(TorchDispatchMode):
    """Sees torch's random operators."""

    def __init__(self, watch: Unseeded) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags and kwargs.get("generator") is None:
            self._watch.note("torch")
        return func(*args, **kwargs)


def _numpy_state() -> tuple[int, ...]:
    state: Any = np.random.get_state()
    return tuple(int(word) for word in state[1][:2])
