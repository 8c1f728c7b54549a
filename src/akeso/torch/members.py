"""Who takes part in a training: optimizers, and the layers they train."""

from __future__ import annotations

import weakref

import torch

from akeso.history import BARE
from akeso.torch import inventory
from akeso.torch.activations import Sites
from akeso.torch.mailbox import Delivery, Mailbox
from akeso.torch.naming import Names, is_compiled, parameters_of
from akeso.torch.passes import Passes
from akeso.torch.quiet import quiet
from akeso.torch.record import Record

#: Optimizers that are described.
_LISTED = 16


def _parameters(optimizer: torch.optim.Optimizer) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


class Members:
    """Numbers the optimizers of a run and lists its layers as they become known."""

    def __init__(
        self,
        record: Record,
        mailbox: Mailbox,
        names: Names,
        passes: Passes,
        sites: Sites,
        *,
        optimizers: list[torch.optim.Optimizer],
        adopt: bool,
    ) -> None:
        self._record, self._mailbox, self._names = record, mailbox, names
        self._passes, self._sites, self._adopt = passes, sites, adopt
        self._only = {id(optimizer) for optimizer in optimizers}
        self._keep = list(optimizers)  # ids are only unique while the objects live
        self.indices: dict[int, int] = {}
        self._count = 0
        self._replaced: dict[int, weakref.ref[torch.optim.Optimizer]] = {}
        self._facts: list[dict[str, object]] = []
        self._initial: Delivery = {}
        self._weighed: dict[int, weakref.ref[torch.Tensor]] = {}
        self._listed = -1
        self.optimized: set[int] = set()  # ids of the parameters that some optimizer has

    def __bool__(self) -> bool:
        return bool(self.indices)

    def index(self, optimizer: torch.optim.Optimizer) -> int | None:
        """The optimizer's number, ``None`` where it is none of ours."""
        known = self.indices.get(id(optimizer))
        if known is not None:
            return known
        if self._only:
            if id(optimizer) not in self._only:
                return None
        elif not self._adopt and not any(
            self._names.known(parameter) for group in optimizer.param_groups for parameter in group["params"]
        ):
            return None
        index = self._successor(optimizer)
        if index is None:
            index = self._count
            self._count += 1
            self._keep.append(optimizer)
            if index < _LISTED:  # a script may make a new one for every task
                self._facts.append(inventory.optimizer_facts(optimizer))
                self._record.fact("optimizers", list(self._facts))
        self.indices[id(optimizer)] = index
        return index

    def _successor(self, optimizer: torch.optim.Optimizer) -> int | None:
        """The number of an optimizer of the very same parameters: some make a new one to change the rate.

        The new one takes its place, so that the old one and what it has averaged can go. One that comes back takes
        turns with the other, and has a number of its own from then on.
        """
        went = self._replaced.get(id(optimizer))
        if went is not None and went() is optimizer:
            return None
        given = _parameters(optimizer)
        for place, known in enumerate(self._keep):
            if id(known) in self.indices and _parameters(known) == given:
                self._keep[place] = optimizer
                self._replaced[id(known)] = weakref.ref(known)
                return self.indices.pop(id(known))
        return None

    def weigh(self) -> None:
        """Read the weights of models as they were before anything changed them."""
        self._weigh([parameter for _, parameter in self._names.parameters()])

    def drop(self, optimizer: torch.optim.Optimizer) -> None:
        """Forget an optimizer that was none; its number is not given again."""
        self.indices.pop(id(optimizer), None)
        self._keep = [known for known in self._keep if known is not optimizer]

    def trains(self, module: torch.nn.Module) -> bool:
        """Whether any optimizer has weights of a module; nobody is left out before that is known."""
        return not self.optimized or any(id(one) in self.optimized for one in parameters_of(module))

    def take(self, *, closure: bool) -> bool:
        """List what is new, before its first step where possible; ``True`` where something was.

        Where the step calls a ``closure``, the model may run in there for the first time: until then all that can
        be had of it are its weights.
        """
        count = len(self._names.labels) + self._count
        if self._listed == count:
            return False
        given = [p for optimizer in self._keep for group in optimizer.param_groups for p in group["params"]]
        self.optimized = {id(parameter) for parameter in given}
        self._weigh([*(parameter for _, parameter in self._names.parameters()), *given])
        if closure and not self._names.labels:
            return False
        self._listed = count
        self._names.settle()
        self.list_layers()
        for root in self._names.roots:
            first = next(parameters_of(root), None)
            if first is not None:
                self._record.fact("dtype", str(first.dtype).removeprefix("torch."))
                self._record.fact("device", first.device.type)
        self._record.fact("models", self._names.labels)
        self._record.fact("autocast", torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"))
        return True

    def _weigh(self, parameters: list[torch.Tensor]) -> None:
        """Read the weights of parameters that were not met before."""
        new = {}
        for parameter in parameters:
            if parameter.is_meta:
                continue  # it has no values
            known = self._weighed.get(id(parameter))
            if known is None or known() is not parameter:
                new[id(parameter)] = parameter
        self._weighed.update({which: weakref.ref(parameter) for which, parameter in new.items()})
        if new:
            with quiet():
                self._mailbox.post(inventory.initial_items(new.values()), self._initial.update)
                self._mailbox.collect(wait=True)

    @property
    def compiled(self) -> bool:
        """Whether a model runs as compiled code."""
        return any(is_compiled(root) for root in self._names.roots)

    def list_layers(self) -> None:
        """Put the layers on record as they are known now."""
        owners = {site.split("#")[0] for site in self._sites.order}
        layers = inventory.layers_of(
            self._names,
            self.optimized,
            self._passes.first_use,
            self._initial,
            owners,
            inventory.bare(self._names, self._keep),
        )
        for layer in layers:
            self._record.layer(layer)
        weighted = [layer for layer in layers if layer.parameters and layer.kind != BARE]
        seen = [layer for layer in weighted if layer.name in self._passes.first_use]
        # Copies that nobody trains, as averages are, have nothing to show.
        trained = [layer for layer in weighted if any(one.in_optimizer for one in layer.parameters)]
        self._record.fact("layers_total", len({layer.name for layer in (*seen, *trained)}))
        self._record.fact("layers_seen", len(seen))
