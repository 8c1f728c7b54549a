"""Replaces methods of torch's classes for a while: names imported earlier or later are both reached."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any


@contextmanager
def patched(owner: Any, name: str, replacement: Callable[..., Any], *, bound: bool = True) -> Iterator[None]:
    """Let ``owner.name(...)`` call ``replacement(original, ...)`` until the context is left."""
    own = name in vars(owner)
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    setattr(owner, name, call)
    try:
        yield
    finally:
        if own or not bound:
            setattr(owner, name, original)
        else:
            delattr(owner, name)


@contextmanager
def wrap_constructors(base: type, made: Callable[[Any], None]) -> Iterator[None]:
    """Call ``made(object)`` after each object of ``base`` or a subclass, known or future, is fully built."""
    depth: dict[int, int] = {}
    with ExitStack() as stack:

        def construct(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
            depth[id(self)] = depth.get(id(self), 0) + 1
            try:
                original(self, *args, **kwargs)
            finally:
                depth[id(self)] -= 1
                outermost = not depth[id(self)]
                if outermost:
                    del depth[id(self)]
            if outermost:
                made(self)

        def wrap(kind: type) -> None:
            if kind is base or "__init__" in vars(kind):
                stack.enter_context(patched(kind, "__init__", construct))

        for kind in _family(base):
            wrap(kind)

        def later(original: Callable[..., None], kind: type, **kwargs: Any) -> None:
            original(**kwargs)
            wrap(kind)

        inherited = vars(base).get("__init_subclass__")
        original = base.__init_subclass__
        base.__init_subclass__ = classmethod(functools.partial(_subclassed, later, original))  # type: ignore[assignment, method-assign]
        try:
            yield
        finally:
            if inherited is not None:
                base.__init_subclass__ = inherited  # type: ignore[method-assign]
            else:
                del base.__init_subclass__


def _subclassed(later: Callable[..., None], original: Callable[..., None], kind: type, **kwargs: Any) -> None:
    later(original, kind, **kwargs)


def _family(base: type) -> list[type]:
    found = [base]
    kind: type
    for kind in base.__subclasses__():
        found += [other for other in _family(kind) if other not in found]
    return found
