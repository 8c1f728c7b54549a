"""A mistake of akeso's own costs nobody a trial: it is said once, and the trial goes on unjudged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_log = logging.getLogger("akeso.search")
#: What was said in this process.
_said: set[str] = set()


def safely(judged: Callable[[], T], otherwise: T) -> T:
    """What ``judged`` gives, or ``otherwise`` where that fails."""
    try:
        return judged()
    except Exception as error:
        mention(error)
        return otherwise


def mention(error: Exception) -> None:
    """Say once what went wrong; called where it is caught."""
    what = f"{type(error).__name__}: {error}"
    if what in _said:
        return
    _said.add(what)
    _log.warning(
        "akeso could not judge a trial for an error of its own and lets it go on (%s); please report it",
        what,
        exc_info=True,
    )
