"""Errors that akeso raises on purpose.

::

    AkesoError                 anything a caller may want to catch
    ├── BadInput               an argument or file that cannot be used; says what was given and what to do
    ├── MissingExtra           an optional package is needed; says which to install
    └── Refused                akeso could, but will not: the result would break a promise

    Stop (a BaseException)     ends a training on the user's explicit wish; never raised unasked
"""

from __future__ import annotations


class AkesoError(Exception):
    """Base of akeso's own errors."""


class BadInput(AkesoError, ValueError):
    """Something given to akeso cannot be used."""


class MissingExtra(AkesoError, ImportError):
    """An optional package is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs {package}, which is not installed; run: pip install 'akeso[{extra}]'"
        )


class Refused(AkesoError):
    """Doing what was asked would break a promise."""


class Stop(BaseException):
    """Ends a training from inside on the user's explicit wish; the only thing of ours that may cross a loop."""
