"""akeso watches the training of neural networks, says what is wrong, cures it, and makes runs repeatable.

Everything public is here and loaded when it is first used, so that ``import akeso`` costs next to nothing
and brings in neither torch nor any other framework.
"""

from __future__ import annotations

from importlib import import_module

# Type checkers take this name for true. Importing it from typing would cost more than all the rest.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from akeso import replay, search
    from akeso.diagnosis import Diagnosis
    from akeso.examination import examine
    from akeso.history import History
    from akeso.torch.watching import Watch, watch
    from akeso.treatment import Outcome, Recipe, treat

    __version__: str

__all__ = [
    "Diagnosis",
    "History",
    "Outcome",
    "Recipe",
    "Watch",
    "__version__",
    "examine",
    "replay",
    "search",
    "treat",
    "watch",
]

#: Where each public name lives; a name without a module is a part of the package itself.
_HOMES = {
    "Diagnosis": "akeso.diagnosis",
    "History": "akeso.history",
    "Outcome": "akeso.treatment",
    "Recipe": "akeso.treatment",
    "Watch": "akeso.torch.watching",
    "examine": "akeso.examination",
    "replay": "",
    "search": "",
    "treat": "akeso.treatment",
    "watch": "akeso.torch.watching",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        globals()[name] = version("akeso")
        return globals()[name]
    if name not in _HOMES:
        raise AttributeError(f"module 'akeso' has no attribute {name!r}; it has {', '.join(__all__)}")
    home = _HOMES[name]
    value = getattr(import_module(home), name) if home else import_module(f"akeso.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
