"""Work of our own on a script's model that the watch must not take for the script's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.nn.modules import module as _module

from akeso.torch.taps import TAPS


@contextmanager
def unseen() -> Iterator[None]:
    """No global module hook runs and no listener hears anything inside.

    A watch that opened a pass inside surgery would leave its function mode on top of the surgeon's.
    """
    tables = (_module._global_forward_pre_hooks, _module._global_forward_hooks)
    kept = [dict(table) for table in tables]
    listeners, TAPS._listeners = TAPS._listeners, []
    for table in tables:
        table.clear()
    try:
        yield
    finally:
        for table, hooks in zip(tables, kept, strict=True):
            table.update(hooks)
        TAPS._listeners = listeners
