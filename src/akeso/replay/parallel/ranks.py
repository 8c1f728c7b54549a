"""Data parallelism with a fixed number of virtual ranks: the same bits on 1, 2, 4 … processes.

A step is computed by V virtual ranks. Each has its own share of the batch (always of the same shape), its own
keyed randomness, and its own gradient; the gradients are added in a fixed tree. Processes only decide who
computes which virtual ranks, so their number does not show in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

import torch

from akeso.errors import BadInput, Refused
from akeso.replay import generators
from akeso.replay.keys import key
from akeso.replay.parallel.batches import batch_length, cut
from akeso.replay.parallel.buffers import Buffers
from akeso.replay.parallel.checks import check_modules, check_replicas
from akeso.replay.parallel.exchange import Exchange
from akeso.replay.parallel.gradients import Layout, Share, Tree
from akeso.replay.parallel.tree import merges, virtual_ranks, virtual_slices


class VirtualRanks:
    """Computes the gradient of a step in ``virtual`` parts that do not depend on the number of processes.

    ::

        ranks = VirtualRanks(model, virtual=4, seed=0)
        for batch in batches:
            optimizer.zero_grad()
            with ranks:
                for inputs, targets in ranks.split(batch):
                    ranks.backward(loss_function(model(inputs), targets))
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)     # the combined gradient
            optimizer.step()
            print(ranks.loss)

    Leaving the ``with`` block puts the combined gradient into ``.grad`` on every process, added to what was
    there before, as ``backward`` does; so accumulation over several blocks works as usual.

    Args:
        model: The module whose gradients are wanted, or several.
        virtual: The number of virtual ranks, chosen once; at most this many processes can share the work.
        seed: The seed of the run.
        step: The number of the step, or a function that gives it; counted here when left out.
        reduction: ``"mean"`` when a loss is a mean over the samples of its share (the result is then the mean
            over the batch, each share weighted by its size), ``"sum"`` when it is a sum.
        name: Tells the randomness of several ``VirtualRanks`` in one step apart.
        group: A process group of ``torch.distributed``; the default group when left out.
    """

    def __init__(
        self,
        model: torch.nn.Module | Iterable[torch.nn.Module],
        virtual: int,
        *,
        seed: int = 0,
        step: int | Callable[[], int] | None = None,
        reduction: str = "mean",
        name: str = "",
        group: Any = None,
    ) -> None:
        if reduction not in ("mean", "sum"):
            raise BadInput(f'reduction must be "mean" or "sum", not {reduction!r}')
        self._modules = [model] if isinstance(model, torch.nn.Module) else list(model)
        check_modules(self._modules)
        self._exchange = Exchange(group)
        self.virtual = virtual
        self.ranks = virtual_ranks(virtual, self._exchange.rank, self._exchange.world)
        self._plan = merges(virtual, self._exchange.world)
        self._seed, self._name, self._weighted = seed, name, reduction == "mean"
        self._step, self._counted = step, -1
        self._last_step, self._entry = -1, 0
        self._checked = False
        self._loss: torch.Tensor | None = None
        self._clear()

    @classmethod
    def of(
        cls, run: Any, model: torch.nn.Module | Iterable[torch.nn.Module], virtual: int, **named: Any
    ) -> VirtualRanks:
        """Virtual ranks with the seed and the steps of an ``akeso.replay.Run``; the run's batches are global."""
        return cls(model, virtual, seed=run.seed, step=lambda: int(run.steps), **named)

    def _clear(self) -> None:
        self._inside = False
        self._current: int | None = None
        self._done: set[int] = set()
        self._weight: float | torch.Tensor | None = None
        self._samples = 0
        self._value: torch.Tensor | None = None

    @property
    def rank(self) -> int:
        """The virtual rank that is being computed."""
        if self._current is None:
            raise BadInput("no virtual rank is being computed; go through vp.split(batch) or vp.each()")
        return self._current

    @property
    def loss(self) -> torch.Tensor:
        """The loss of the last step over all virtual ranks, the same bits on every process."""
        if self._loss is None:
            raise BadInput("no step has been finished yet; the loss is known when the with block has ended")
        return self._loss

    def __enter__(self) -> VirtualRanks:
        if self._inside:
            raise BadInput("a step of virtual ranks is already under way; steps cannot be nested")
        if not self._checked:
            check_replicas(self._modules, self._exchange)
            self._checked = True
        step = self._number()
        self._entry = self._entry + 1 if step == self._last_step else 0
        self._last_step = step
        self._clear()
        self._layout = Layout(self._trainable())
        self._before = [parameter.grad for parameter in self._layout.parameters]
        for parameter in self._layout.parameters:
            parameter.grad = None
        self._versions = [parameter._version for parameter in self._layout.parameters]
        self._buffers = Buffers(self._modules)
        self._tree = Tree(self._plan, self._exchange)
        self._generators = generators.capture()
        self._inside = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._inside:
            return  # finish() was called by hand
        if kind is None:
            self.finish()
        else:
            self._abandon()

    def each(self) -> Iterator[int]:
        """Go through this process's virtual ranks; for batches that are cut by the caller."""
        if not self._inside:
            raise BadInput(
                "virtual ranks are computed inside a step; write: with vp: for micro in vp.split(batch): …"
            )
        for leaf in self.ranks:
            if leaf in self._done:
                raise BadInput(
                    f"virtual rank {leaf} was computed already in this step; split one batch per step"
                )
            self._begin(leaf)
            yield leaf
            self._end()

    def split(self, batch: Any, *, size: int | None = None) -> Iterator[Any]:
        """The micro-batches of this process's virtual ranks, one after the other.

        Args:
            batch: The global batch, the same on every process; or, with ``size``, only the samples of this
                process's virtual ranks, as ``virtual_slices`` names them.
            size: The number of samples in the global batch.
        """
        held = batch_length(batch)
        slices = virtual_slices(
            held if size is None else size, self.virtual, self._exchange.rank, self._exchange.world
        )
        offset = 0 if size is None else slices[0].start
        expected = slices[-1].stop - offset
        if size is not None and held != expected:
            raise BadInput(
                f"process {self._exchange.rank} of {self._exchange.world} should hold {expected} of the "
                f"batch's {size} samples, but was given {held}; take them as virtual_slices says"
            )
        for leaf, part in zip(self.each(), slices, strict=True):
            self._samples = part.stop - part.start
            if self._samples:
                yield cut(batch, slice(part.start - offset, part.stop - offset), held)
            assert leaf == self._current

    def backward(
        self,
        loss: torch.Tensor,
        *,
        weight: float | torch.Tensor | None = None,
        scaler: Any = None,
        **arguments: Any,
    ) -> None:
        """``loss.backward()`` for the virtual rank at hand.

        Args:
            loss: The loss of the micro-batch.
            weight: What the mean of this loss was taken over, where that is not the number of samples: the
                number of tokens that are not ignored, the sum of the sample weights. Zero leaves the share
                out.
            scaler: A ``GradScaler``; the loss is scaled for the backward pass, and reported unscaled.
            **arguments: Passed to ``Tensor.backward``.
        """
        rank = self.rank
        if weight is not None:
            if not self._weighted:
                raise BadInput('a weight makes no sense with reduction="sum"; leave it out')
            if self._weight is not None:
                raise BadInput(
                    f"virtual rank {rank} was given two weights in one step; give it with one loss only"
                )
            self._weight = weight
        value = loss.detach().to(torch.float64 if loss.device.type != "mps" else torch.float32)
        self._value = value if self._value is None else self._value + value
        (loss if scaler is None else scaler.scale(loss)).backward(**arguments)

    def finish(self) -> None:
        """Combine the gradients and put the result into ``.grad``; leaving the ``with`` block does it."""
        if not self._inside:
            raise BadInput("there is no step to finish; write: with vp: …")
        if self._current is not None:
            self._end()
        missing = [leaf for leaf in self.ranks if leaf not in self._done]
        if missing:
            self._abandon()
            raise BadInput(
                f"virtual ranks {missing} were not computed; go through the whole of vp.split(batch), "
                "without break"
            )
        try:
            total = self._tree.total(self._layout.empty(), self.virtual)
            self._buffers.finish(self._exchange, self._plan, self.virtual)
        except BaseException:
            self._abandon()
            raise
        self._layout.put_back(total, self._before, weighted=self._weighted)
        self._loss = self._combined_loss(total)
        generators.restore(self._generators)
        self._clear()

    def _begin(self, leaf: int) -> None:
        self._current, self._weight, self._value, self._samples = leaf, None, None, 0
        generators.seed_all(key(self._seed, "virtual", self._name, self._last_step, self._entry, leaf))

    def _end(self) -> None:
        leaf = self.rank
        changed = [
            name
            for name, parameter, version in zip(
                self._layout.names, self._layout.parameters, self._versions, strict=True
            )
            if parameter._version != version
        ]
        if changed:
            raise Refused(
                f"{changed[0]} was changed while virtual rank {leaf} was computed; a parameter may change "
                "only after the gradients of all virtual ranks are combined: call optimizer.step() after "
                "the with block"
            )
        if self._value is None and all(parameter.grad is None for parameter in self._layout.parameters):
            share: Share = self._layout.empty()  # no samples, or a loss that was left out
        else:
            weight = self._weight if self._weight is not None else float(self._samples or 1)
            share = self._layout.collect(weight, self._value, weighted=self._weighted)
        self._tree.add(leaf, share)
        self._buffers.collect(leaf)
        self._done.add(leaf)
        self._current = None

    def _abandon(self) -> None:
        """Put everything back as it was before the step."""
        self._buffers.restore()
        for parameter, gradient in zip(self._layout.parameters, self._before, strict=True):
            parameter.grad = gradient
        generators.restore(self._generators)
        self._clear()

    def _combined_loss(self, total: Share) -> torch.Tensor:
        weight, loss = total.control[0], total.control[1]
        return (loss / torch.where(weight == 0, torch.ones_like(weight), weight)) if self._weighted else loss

    def _number(self) -> int:
        if self._step is None:
            self._counted += 1
            return self._counted
        return self._step() if callable(self._step) else self._step

    def _trainable(self) -> list[tuple[str, torch.nn.Parameter]]:
        several, seen, found = len(self._modules) > 1, set(), []
        for number, root in enumerate(self._modules):
            for name, parameter in root.named_parameters():
                if parameter.requires_grad and id(parameter) not in seen:
                    seen.add(id(parameter))
                    found.append((f"{number}.{name}" if several else name, parameter))
        return found
