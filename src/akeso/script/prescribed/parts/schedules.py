"""Schedules of the learning rate, advanced less often than the script does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from torch.optim.lr_scheduler import LRScheduler

from akeso.remedies.edit import Edit
from akeso.script.prescribed.ledger import Ledger
from akeso.script.prescribed.part import Part
from akeso.script.prescribed.patching import patched

if TYPE_CHECKING:
    from akeso.script.prescribed.operation import Operation


class Schedules(Part):
    """Lets a schedule go on only when as many of its steps were asked for as a pass over the data has."""

    remedies: ClassVar = {"pace-schedule": "no schedule of torch was stepped with every batch"}

    def __init__(self, operation: Operation, ledger: Ledger) -> None:
        super().__init__(operation, ledger)
        self._asked: dict[int, int] = {}

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Entered while the operation is."""
        edit = self.ledger.one("pace-schedule")
        if edit is None:
            yield
            return

        def step(original: Callable[..., Any], scheduler: LRScheduler, *args: Any, **kwargs: Any) -> Any:
            return self._step(edit, original, scheduler, args, kwargs)

        with patched(LRScheduler, "step", step):
            yield

    def _step(
        self,
        edit: Edit,
        original: Callable[..., Any],
        scheduler: LRScheduler,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        asked = self._asked.get(id(scheduler))
        if asked is None:  # the step that a schedule makes when it is made itself
            self._asked[id(scheduler)] = 0
            return original(scheduler, *args, **kwargs)
        self._asked[id(scheduler)] = asked + 1
        self.ledger.mark(edit)
        return None if (asked + 1) % self._every(edit) else original(scheduler, *args, **kwargs)

    def _every(self, edit: Edit) -> int:
        """The batches of a pass: those of the loader, where it drops the last one the prescription does not know."""
        every = max(1, int(edit.values["every"]))
        try:
            length = len(self.operation.current_loader)
        except TypeError:
            return every
        return length if length and abs(length - every) <= 1 else every
