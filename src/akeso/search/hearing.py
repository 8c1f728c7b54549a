"""Trials side by side in threads of one process: each hears of its own training alone.

torch is listened to for the whole process. Without this, a trial would be given the losses of its neighbours, and be
stopped for their NaN.
"""

from __future__ import annotations

import threading
from typing import Any

#: Whoever begins or ends to listen does so alone; what it calls for that may end a trial, and so listen no more.
ONE_AT_A_TIME = threading.RLock()
#: Has ``home`` in threads in which trials were watched.
_here = threading.local()


class Hearing:
    """Stands between torch and the probe of a trial, and hands on what happens in the trial's own thread.

    So it does with what happens where no trial is at home: an objective may train in a thread of its own.
    """

    def __init__(self, probe: Any) -> None:
        self._probe, self._home = probe, threading.get_ident()
        _here.home = True

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._probe, name)
        if not callable(found):
            return found

        def heard(*args: Any) -> Any:
            mine = threading.get_ident() == self._home or not hasattr(_here, "home")
            return found(*args) if mine else None

        setattr(self, name, heard)
        return heard


def begin(watch: Any) -> Hearing:
    """From now on the watch of a trial hears through what is returned."""
    from akeso.torch.taps import TAPS

    hearing: Any = Hearing(watch._probe)
    TAPS.add(hearing)
    TAPS.remove(watch._probe)
    return hearing  # type: ignore[no-any-return]


def end(hearing: Any) -> None:
    """It hears nothing any more."""
    from akeso.torch.taps import TAPS

    TAPS.remove(hearing)
