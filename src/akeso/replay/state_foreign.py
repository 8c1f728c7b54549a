"""Plain numbers that objects of installed packages carry: the count of an Accelerator, the sums of a meter.

Such an object in a variable of the user's is not taken apart like one of the user's own classes: most of what
it holds is machinery. But a number or a flag of it that changes from step to step is state like any other.
Things that belong to one process (files, progress bars, connections) are left alone, and so is the standard
library.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

_NUMBERS = (bool, int, float)
_PLAIN = (*_NUMBERS, complex, str, bytes, type(None), list, tuple, dict, set, frozenset)
_TRAINERS = {"accelerate", "lightning", "pytorch_lightning", "transformers"}
_LEARNING_IN_KERAS = {"Layer", "BaseOptimizer"}
_NOT_STATE = {"torch", "numpy", "akeso"}
_OWNERS = ("close", "fileno", "finish", "shutdown", "__exit__", "__next__", "__del__")


@lru_cache(maxsize=4096)
def _installed(module: str) -> bool:
    place = getattr(sys.modules.get(module), "__file__", None)
    if place is None or module.partition(".")[0] in _NOT_STATE:
        return False
    path = Path(place).resolve()
    homes = [Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")]
    return "site-packages" in path.parts or any(home in path.parents for home in homes)


def is_foreign(value: Any) -> bool:
    """Tell whether an object is of an installed package, and may carry state that can be put back."""
    kind = type(value)
    if isinstance(value, type) or not hasattr(value, "__dict__") or not _installed(kind.__module__):
        return False
    return not any(hasattr(kind, name) for name in _OWNERS)


def is_trainer(value: Any) -> bool:
    """Tell whether an object is of a training library: mostly machinery, around models that are tracked apart."""
    return is_foreign(value) and type(value).__module__.partition(".")[0] in _TRAINERS


def is_of_keras(value: Any) -> bool:
    """Tell whether an object is a layer, a model or an optimizer of Keras, on whichever backend."""
    return any(
        kind.__module__.partition(".")[0] == "keras" and kind.__name__ in _LEARNING_IN_KERAS
        for kind in type(value).__mro__
    )


def scalers(value: Any) -> dict[str, Any]:
    """Return the gradient scalers an object holds, by attribute."""
    return {entry: item for entry, item in vars(value).items() if isinstance(item, torch.amp.GradScaler)}


def numbers(value: Any) -> Iterator[tuple[str, Any, str, Any]]:
    """Yield path, owner, attribute and value of the numbers of an object, and of the plain records it holds."""
    for entry, item in list(vars(value).items()):
        if type(item) in _NUMBERS:
            yield entry, value, entry, item
        elif is_foreign(item) and _is_record(item):
            for inner, number in list(vars(item).items()):
                if type(number) in _NUMBERS:
                    yield f"{entry}.{inner}", item, inner, number


def _is_record(value: Any) -> bool:
    """Tell whether an object holds nothing but plain values: counters and flags, no machinery."""
    return all(isinstance(item, _PLAIN) for item in vars(value).values())
