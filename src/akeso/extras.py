"""Optional packages, imported where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from akeso.errors import MissingExtra


def require(module: str, extra: str, purpose: str) -> Any:
    """The module, or an error that says what to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and module.split(".")[0] != error.name.split(".")[0]:
            raise
        raise MissingExtra(module.split(".")[0], extra, purpose) from error
