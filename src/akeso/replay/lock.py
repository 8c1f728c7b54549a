"""One process at a time on a run folder.

The lock belongs to the kernel (``flock``): it goes when its process goes, so a killed run never blocks the
next one. Children made by ``fork`` (the workers of a loader) let go of it at once; otherwise they would hold
it for the seconds they take to notice that their parent is gone.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from akeso.errors import BadInput, Refused

FILE = "lock"
_CHILDREN = 2.0
"""Seconds within which a child lets go: its parent may have been killed before it first came to run."""


class FolderLock:
    """Holds the lock of a run folder until :meth:`release`, or until the process ends."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._file = -1
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise BadInput(
                f"the run folder {folder} cannot be written: {self._path.name}: {error.strerror}; give the run "
                "a folder in a place that can be written"
            ) from error
        until = time.monotonic() + _CHILDREN
        while not self._locked():
            owner = os.pread(self._file, 32, 0).decode(errors="replace").strip()
            if not _gone(owner) or time.monotonic() > until:
                os.close(self._file)
                self._file = -1
                raise Refused(
                    f"the run folder {folder} is in use by process {owner or '?'}; wait for it to end, or give "
                    "this run a folder of its own"
                )
            time.sleep(0.01)
        with suppress(OSError):  # a full disk; the lock holds all the same
            os.ftruncate(self._file, 0)
            os.write(self._file, str(os.getpid()).encode())
        os.register_at_fork(after_in_child=self._forget)

    def _locked(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _forget(self) -> None:
        # Closing the child's copy leaves the parent's lock in place.
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def release(self) -> None:
        """Let the next process in."""
        if self._file >= 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)
            self._file = -1


def _gone(owner: str) -> bool:
    """Tell whether a process of this machine is no more."""
    try:
        os.kill(int(owner), 0)
    except ProcessLookupError:
        return True
    except (ValueError, OSError):  # nobody has written there yet, or somebody else's process
        return False
    return False
