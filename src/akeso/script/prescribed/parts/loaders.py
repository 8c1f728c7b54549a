"""Another batch size, where batches are made by a loader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from akeso.script.prescribed.ledger import Ledger
from akeso.script.prescribed.part import Part

if TYPE_CHECKING:
    from akeso.script.prescribed.operation import Operation


class Loaders(Part):
    """Changes the batch size of training loaders: those that shuffle or sample, and the first one."""

    remedies: ClassVar = {"set-batch-size": "the script makes its batches without a DataLoader"}

    def __init__(self, operation: Operation, ledger: Ledger) -> None:
        super().__init__(operation, ledger)
        self._any = False

    def on_loader(self, arguments: dict[str, Any]) -> None:
        """Set the batch size of a training loader."""
        edit = self.ledger.one("set-batch-size")
        first, self._any = not self._any, True
        if edit is None or not (first or arguments.get("shuffle") or arguments.get("sampler") is not None):
            return
        if arguments.get("batch_sampler") is not None:
            self.ledger.object_to(edit, "the loader is given a batch sampler of the script's own")
            return
        arguments["batch_size"] = int(edit.values["to"])
        self.ledger.mark(edit)
