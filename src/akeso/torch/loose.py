"""Loose ends of a loop: gradients that are never cleared, parameters that nothing trains."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch

from akeso.torch.naming import Names, parameters_of
from akeso.torch.record import Record

#: Sampled steps before a parameter without a gradient is spoken of, and optimizer steps before that.
_SAMPLES, _STEPS = 5, 8
#: Entries of a parameter by which it is seen whether it was written to, and frozen parameters that are watched so.
_SEEN, _FROZEN = 256, 64
#: Clearings that must be missing, with none seen, before it is said; layers that must be made anew, likewise.
_STALE = 3


@dataclass(slots=True)
class _Trace:
    """One gradient after a step, to be recognised at the next backward."""

    parameter: torch.Tensor
    gradient: torch.Tensor
    version: int
    stale: bool = False
    checked: bool = False


class LooseEnds:
    """Watches what a loop forgets."""

    def __init__(self, record: Record, names: Names) -> None:
        self._record, self._names = record, names
        self._traces: dict[int, _Trace] = {}
        self._stale: dict[int, int] = {}
        self._cleared: set[int] = set()
        self._with_gradient: set[int] = set()
        self._held: dict[int, set[int]] = {}  # parameters that each optimizer holds
        self._looks: Counter[int] = Counter()  # sampled steps of the optimizer that holds a parameter
        self._samples = 0
        self._due = _SAMPLES
        self._reported: set[str] = set()
        self._made_anew: Counter[str] = Counter()  # sampled steps in which a module was made and thrown away
        self._copies: dict[
            int, torch.Tensor
        ] = {}  # parameters of copies of a trained model, as they first were
        self._frozen: dict[str, torch.Tensor] = {}  # frozen parameters, as they first were
        self._written: list[str] = []  # those of them that the script has written to
        self.optimized: set[int] = set()

    @property
    def waiting(self) -> bool:
        """Whether the next backward has something to show."""
        return bool(self._traces)

    def first_backward(self) -> None:
        """The first backward since a step: is the gradient of that step still there, untouched?"""
        for trace in self._traces.values():
            gradient = trace.parameter.grad
            trace.stale = gradient is trace.gradient and gradient._version == trace.version
            trace.checked = True

    def before_step(self, index: int, *, closure: bool = False) -> None:
        """The backward just seen belongs to this optimizer: what was found holds for it.

        Where a ``closure`` is to compute the loss, that backward is still to come.
        """
        if closure and index in self._traces and not self._traces[index].checked:
            return
        trace = self._traces.pop(index, None)
        if trace is None or not trace.checked:
            return
        if trace.stale:
            self._stale[index] = self._stale.get(index, 0) + 1
        else:
            self._cleared.add(index)

    def after_sampled_step(self, index: int, optimizer: torch.optim.Optimizer, step: int) -> None:
        """Remember a gradient, look for parameters without one."""
        given = [p for group in optimizer.param_groups for p in group["params"]]
        self.optimized.update(map(id, given))  # it may have been given more since it was first seen
        self._looks.update(map(id, given))
        self._held[index] = set(map(id, given))
        own = [p for p in given if p.grad is not None]
        if own:
            smallest = min(own, key=torch.Tensor.numel)
            assert smallest.grad is not None
            self._traces[index] = _Trace(smallest, smallest.grad, smallest.grad._version)
        if (
            self._stale.get(index, 0) >= _STALE
            and index not in self._cleared
            and "stale" not in self._reported
        ):
            self._reported.add("stale")
            self._record.event(step, "stale-gradient", count=self._stale[index])
        self._passing(step)
        self._samples += 1
        self._with_gradient.update(
            id(parameter)
            for known in (self._names.parameters(), self._names.outside())
            for _, parameter in known
            if parameter.grad is not None
        )
        if self._samples >= self._due and step >= _STEPS:
            self._due *= 2
            self._without(step, _SAMPLES)

    def _passing(self, step: int) -> None:
        """Look for layers that are made anew in every pass: random each time, and never trained."""
        self._made_anew.update(self._names.gone())
        for module, count in self._made_anew.items():
            if count >= _STALE and module not in self._reported:
                self._reported.add(module)
                self._record.event(step, "detached", f"{module}.weight", reason="made-anew")

    def _beside(self) -> set[int]:
        """Parameters of models that are not trained at all: teachers, targets, averages of another one."""
        trained = self.optimized | self._with_gradient
        models = [[id(parameter) for parameter in parameters_of(root)] for root in self._names.roots]
        return {which for model in models if trained.isdisjoint(model) for which in model}

    def _copied(self) -> dict[int, torch.Tensor]:
        """Parameters of models that no optimizer has, of the same kind and shapes as one that is trained.

        They may be written to now and then, as the networks that make the targets of Q-learning are.
        """
        kinds = [
            (root, (type(root), tuple(parameter.shape for parameter in parameters_of(root))))
            for root in self._names.roots
        ]
        trained = {kind for root, kind in kinds if any(id(p) in self.optimized for p in parameters_of(root))}
        return {
            id(parameter): parameter
            for root, kind in kinds
            if kind in trained and all(id(p) not in self.optimized for p in parameters_of(root))
            for parameter in parameters_of(root)
        }

    def _follow_frozen(self) -> None:
        """See whether frozen parameters change all the same, as those of an average that follows the model do."""
        for name, parameter in self._names.parameters():
            if parameter.requires_grad or not parameter.numel() or parameter.is_meta or name in self._written:
                continue
            now = parameter.detach().reshape(-1)[:_SEEN]
            first = self._frozen.get(name)
            if first is None or (first.device, first.dtype) != (now.device, now.dtype):
                if name in self._frozen or len(self._frozen) < _FROZEN:
                    self._frozen[name] = now.clone()
            elif not torch.equal(now, first):
                self._written.append(name)
                self._record.fact("frozen_written", list(self._written))

    def _in_vain(self) -> set[int]:
        """Parameters whose optimizer holds none that ever had a gradient: whatever it does, it trains nothing."""
        held = [ones for ones in self._held.values() if self._with_gradient.isdisjoint(ones)]
        return {which for ones in held for which in ones}

    def _without(self, step: int, looks: int, *, over: bool = False) -> None:
        beside, copies, in_vain = self._beside(), self._copied(), self._in_vain()
        self._follow_frozen()
        for which, parameter in copies.items():
            self._copies.setdefault(which, parameter.detach().reshape(-1)[:_SEEN].clone())
        for name, parameter in self._names.parameters():
            if not parameter.requires_grad or not parameter.numel() or name in self._reported:
                continue
            if id(parameter) in beside:
                continue
            received, optimized = id(parameter) in self._with_gradient, id(parameter) in self.optimized
            if received and optimized:
                continue
            if optimized and self._looks[id(parameter)] < looks:
                continue  # its own steps were hardly seen: of a copy that was trained for a moment, say
            if id(parameter) in copies:
                first = self._copies[id(parameter)]
                if not over or not torch.equal(parameter.detach().reshape(-1)[:_SEEN], first):
                    continue  # whether it stands still shows at the end
            self._reported.add(name)
            reason = "not-in-optimizer" if received else "no-grad" if optimized else "unused"
            more = {"optimizer_in_vain": True} if id(parameter) in in_vain else {}
            self._record.event(step, "detached", name, reason=reason, **more)
        for name, parameter in self._names.outside():
            received, optimized = id(parameter) in self._with_gradient, id(parameter) in self.optimized
            if received and not optimized and name not in self._reported:
                self._reported.add(name)
                self._record.event(step, "detached", name, reason="unregistered")

    def close(self, step: int) -> None:
        """A short run may end before its loose ends were due, and what stood still all the while is known now."""
        if self._samples >= 2 and step >= 2:
            self._without(step, 2, over=True)
            if still := self._unmoved():
                self._record.fact("copies_unmoved", still)

    def _unmoved(self) -> list[str]:
        """The copies of a trained model that are at the end what they were when they were first seen."""
        found = []
        for label, root in zip(self._names.labels, self._names.roots, strict=False):
            own = list(parameters_of(root))
            first = [self._copies.get(id(parameter)) for parameter in own]
            known = [
                (parameter.detach().reshape(-1)[:_SEEN], seen)
                for parameter, seen in zip(own, first, strict=True)
                if seen is not None
            ]
            if known and len(known) == len(own) and all(torch.equal(now, then) for now, then in known):
                found.append(label)
        return found
