"""How the threads of a process that akeso starts wait for each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: What a user may have said of it, for GNU's, LLVM's and Intel's OpenMP.
_SAID: Final = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
#: Rounds of a loop after which a thread sleeps: what GNU's OpenMP itself takes where it knows that there are fewer
#: cores than threads. It cannot know of other processes.
_ROUNDS: Final = "1000"


def yielding(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for a process whose threads let others have the core while they wait.

    By default they spin. Beside other work each then keeps the core from the one it waits for, and a training on two
    threads takes ten times as long as the same training on one. No figure depends on it. What is said of it in the
    environment stays.

    >>> yielding({"OMP_WAIT_POLICY": "active"})
    {'OMP_WAIT_POLICY': 'active'}
    """
    given = dict(environment)
    if not any(name in given for name in _SAID):
        given["GOMP_SPINCOUNT"] = _ROUNDS
    return given
