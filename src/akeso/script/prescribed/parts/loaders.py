"""Another batch size or order, where batches are made by a loader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch.utils.data import IterableDataset

from akeso.script.prescribed.ledger import Ledger
from akeso.script.prescribed.part import Part

if TYPE_CHECKING:
    from akeso.script.prescribed.operation import Operation


class Loaders(Part):
    """Changes batch sizes of training loaders, those that shuffle or sample and the first one; that one it shuffles."""

    remedies: ClassVar = dict.fromkeys(
        ("set-batch-size", "shuffle-data"), "the script makes its batches without a DataLoader"
    )

    def __init__(self, operation: Operation, ledger: Ledger) -> None:
        super().__init__(operation, ledger)
        self._any = False

    def on_loader(self, arguments: dict[str, Any]) -> None:
        """Set the batch size of a training loader, or its order."""
        first, self._any = not self._any, True
        if first:
            self._shuffle(arguments)
        if not (first or arguments.get("shuffle") or arguments.get("sampler") is not None):
            return
        size = arguments.get("batch_size", 1)
        self.ledger.facts.setdefault("batch_sizes", []).append(size if isinstance(size, int) else None)
        edit = self.ledger.one("set-batch-size")
        if edit is None:
            return
        if arguments.get("batch_sampler") is not None:
            self.ledger.object_to(edit, "the loader is given a batch sampler of the script's own")
            return
        if size == int(edit.values["to"]):
            self.ledger.object_to(edit, f"batches are of {size} samples already")
            return
        arguments["batch_size"] = int(edit.values["to"])
        self.ledger.mark(edit)

    def _shuffle(self, arguments: dict[str, Any]) -> None:
        edit = self.ledger.one("shuffle-data")
        if edit is None:
            return
        own = [name for name in ("sampler", "batch_sampler") if arguments.get(name) is not None]
        if own or isinstance(arguments.get("dataset"), IterableDataset):
            self.ledger.object_to(edit, "the script chooses the order of its samples itself")
        elif arguments.get("shuffle"):
            self.ledger.object_to(edit, "the loader shuffles already")
        else:
            arguments["shuffle"] = True
            self.ledger.mark(edit)
