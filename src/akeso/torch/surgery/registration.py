"""Modules that a model uses and torch does not know of, because they are kept in plain lists and dicts."""

from __future__ import annotations

from typing import Any

from torch import nn


def register_held(model: nn.Module) -> list[str]:
    """Make modules in plain lists, tuples and dicts part of the model; returns the names of what held them.

    A list becomes a ``ModuleList``, a dict with usable keys a ``ModuleDict``, so that code that goes through
    them goes on as before; what neither fits stays as it is, and its modules are registered beside it.
    """
    found = []
    known = {id(module) for module in model.modules()}
    for prefix, module in list(model.named_modules()):
        for name, held in list(vars(module).items()):
            parts = _modules(held)
            if all(id(part) in known for part in parts):
                continue
            known.update(map(id, parts))
            found.append(f"{prefix}.{name}" if prefix else name)
            if type(held) is list:
                setattr(module, name, nn.ModuleList(parts))
            elif type(held) is dict and all(isinstance(key, str) and key and "." not in key for key in held):
                setattr(module, name, nn.ModuleDict(held))
            else:
                for number, part in enumerate(parts):
                    module.add_module(f"{name}_{number}", part)
    return found


def _modules(held: Any) -> list[nn.Module]:
    """The modules in a container that holds nothing else."""
    if isinstance(held, dict):
        held = list(held.values())
    if not isinstance(held, (list, tuple)) or not held:
        return []
    return list(held) if all(isinstance(part, nn.Module) for part in held) else []
