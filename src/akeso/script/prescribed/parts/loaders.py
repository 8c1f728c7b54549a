"""Another batch size or order, where batches are made by a loader."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

from torch.optim import Optimizer
from torch.utils.data import IterableDataset

from akeso.script.prescribed.ledger import Ledger
from akeso.script.prescribed.part import Part
from akeso.script.prescribed.places import Place

if TYPE_CHECKING:
    from akeso.script.prescribed.operation import Operation


#: Steps over which it is seen which loaders training takes its batches from.
_LOOKED_AT = 20


class Loaders(Part):
    """Changes batch sizes and order of the loaders that training takes its batches from.

    Which these are an earlier run has shown; where none has, they are those that shuffle or sample, and the first.
    """

    remedies: ClassVar = dict.fromkeys(
        ("set-batch-size", "shuffle-data"), "the script makes its batches without a DataLoader"
    )

    def __init__(self, operation: Operation, ledger: Ledger) -> None:
        super().__init__(operation, ledger)
        self._made: list[tuple[int | None, Place | None]] = []  # batch size and place of every loader
        self._steps: Counter[int] = Counter()  # made with batches of each loader

    def on_loader(self, loader: Any, arguments: dict[str, Any], place: Place | None) -> None:
        """Set the batch size of a training loader, or its order."""
        loader.__dict__["_akeso_number"] = number = len(self._made)
        size = arguments.get("batch_size", 1)
        self._made.append((size if isinstance(size, int) else None, place))
        known = self.operation.training_loaders
        chosen = number in known if known else number == 0
        if chosen:
            self._shuffle(arguments)
        if chosen or (not known and (arguments.get("shuffle") or arguments.get("sampler") is not None)):
            self._set_size(arguments, size)

    def after_step(self, optimizer: Optimizer) -> None:
        """The last batch before a step was one of training, but where a script evaluates between the two."""
        number = getattr(self.operation.current_loader, "_akeso_number", None)
        if number is None or self.operation.steps > _LOOKED_AT:
            return
        self._steps[number] += 1
        most = max(self._steps.values())
        trained = sorted(number for number, steps in self._steps.items() if 2 * steps >= most)
        self.ledger.facts["training_loaders"] = trained
        self.ledger.facts["batch_sizes"] = [self._made[number][0] for number in trained]
        self.ledger.places["training-loader"] = [
            place for number in trained if (place := self._made[number][1]) is not None
        ]

    def _set_size(self, arguments: dict[str, Any], size: Any) -> None:
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
