"""Being told when a package has been imported, without importing it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class Arrival(MetaPathFinder):
    """Calls back once, right after the first import of a package is complete.

    A script that never imports torch is not made to pay for it; one that does is watched from its first
    model on. Where the package is there already, the call comes at once.
    """

    def __init__(self, package: str, callback: Callable[[], None]) -> None:
        self._package = package
        self._callback = callback
        self._searching = False

    def install(self) -> None:
        """Begin to wait."""
        if self._package in sys.modules:
            self._callback()
        else:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Wait no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Let the others find the package, and hear of it when its module has been executed."""
        if fullname != self._package or self._searching:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching = False
        loader = spec.loader if spec else None
        if loader is None or not hasattr(loader, "exec_module"):
            return spec
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            # The loader's own method is put back first: nothing of ours is left on it.
            vars(loader).pop("exec_module", None)
            execute(module)
            self.remove()
            self._callback()

        try:
            loader.exec_module = exec_module  # type: ignore[method-assign]
        except AttributeError:  # a loader that cannot be told: the package is simply imported
            return spec
        return spec
