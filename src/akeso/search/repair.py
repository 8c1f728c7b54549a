"""Light remedies for a trial under way: a lower rate, clipping, a warm-up, other first weights.

A remedy acts through hooks of the optimizer, so that whatever schedule the objective uses goes on underneath:
the rate is multiplied just for the step and put back after it. What was really used is recorded beside what
was suggested.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

#: Per problem: factor of the learning rate, norm to clip to (in multiples of what is usual), new weights or not.
_REMEDIES: Final[dict[str, tuple[float, float | None, bool]]] = {
    "non-finite": (0.1, 1.0, True),
    "exploding-gradient": (0.3, 1.0, False),
    "dying-relu": (0.1, 1.0, True),
    "saturated-activation": (0.1, 1.0, True),
    "constant-prediction": (0.1, 1.0, True),
    "vanishing-gradient": (1.0, 1.0, True),
}
#: Steps over which the rate rises after a repair.
_WARM_UP: Final = 50


class Repair:
    """Treats the problems of one trial, at most twice; a trial that needs more is stopped.

    Without optimizers those are treated that step while it is open and hold parameters of the models. Weights that
    are not trained stay what they are: they may be what a backbone has learnt elsewhere, and no step has broken them.
    """

    def __init__(self, models: Sequence[Any], optimizers: Sequence[Any] = (), *, most: int = 2) -> None:
        self._models, self._optimizers = list(models), list(optimizers)
        self._most = most
        self._finder: Any = None
        self._handles: list[Any] = []
        self._factor, self._clip = 1.0, math.inf
        self._since: dict[int, int] = {}  # steps since the last repair, by optimizer
        self._kept: list[list[Any]] = []
        self._suggested: list[list[float]] = []  # the rates that each optimizer began with
        self._first: list[
            tuple[Any, Any]
        ] = []  # weights that nobody knows how to draw, and their first values
        self.done: list[str] = []

    @property
    def used(self) -> dict[str, Any]:
        """The hyperparameters really used, beside what was suggested."""
        return {
            "repaired": list(self.done),
            "learning_rate_factor": self._factor,
            "clip_norm": self._clip if math.isfinite(self._clip) else None,
            "warm_up_steps": _WARM_UP if self.done else 0,
            "new_weights": any(_REMEDIES[problem][2] for problem in self.done),
            "learning_rate": [rate * self._factor for rates in self._suggested for rate in rates],
        }

    def open(self) -> None:
        """Notes what the trial begins with, and looks for the optimizers where none were given."""
        self._suggested = [_rates(optimizer) for optimizer in self._optimizers]
        self._first = [
            (parameter, parameter.detach().clone())
            for model in self._models
            for module in model.modules()
            if not _renewable(module)
            for parameter in module.parameters(recurse=False)
            if parameter.requires_grad and not _is_lazy(parameter)
        ]
        if not self._models or self._optimizers:
            return
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        self._finder = register_optimizer_step_pre_hook(self._meet)

    def _meet(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if any(optimizer is known for known in self._optimizers):
            return
        own = {id(parameter) for parameter in self._parameters()}
        if any(id(parameter) in own for group in optimizer.param_groups for parameter in group["params"]):
            self._optimizers.append(optimizer)
            self._suggested.append(_rates(optimizer))
            if self.done:
                self._attach(optimizer)

    def _parameters(self) -> Iterator[Any]:
        return (parameter for model in self._models for parameter in model.parameters())

    def treat(self, problem: str) -> bool:
        """Treat a problem; False when there is no light remedy for it, or no more patience."""
        if problem not in _REMEDIES or not self._models or not self._optimizers:
            return False
        if len(self.done) >= self._most:
            return False
        factor, clip, renew = _REMEDIES[problem]
        if renew:
            self._renew()
        self.done.append(problem)
        self._factor *= factor
        self._clip = clip if clip is not None else self._clip
        self._since.clear()
        # The gradients of the step in which the problem showed belong to the old weights. They become zero and do not
        # go, for the loop may look at them after the step.
        for parameter in self._parameters():
            if parameter.grad is not None:
                parameter.grad.detach_().zero_()
        if not self._handles:
            for optimizer in self._optimizers:
                self._attach(optimizer)
        return True

    def _attach(self, optimizer: Any) -> None:
        self._handles.append(optimizer.register_step_pre_hook(self._before))
        self._handles.append(optimizer.register_step_post_hook(self._after))

    def close(self) -> None:
        """Takes the hooks out, and lets go of the first weights."""
        if self._finder is not None:
            self._finder.remove()
            self._finder = None
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._first.clear()

    def _renew(self) -> None:
        """New weights: orthogonal where there are matrices, so that signals neither grow nor shrink."""
        import torch

        with torch.no_grad():
            for module in (module for model in self._models for module in model.modules()):
                if not _renewable(module):
                    continue
                module.reset_parameters()
                weight = getattr(module, "weight", None)
                if isinstance(weight, torch.nn.Parameter) and weight.dim() >= 2 and not _is_embedding(module):
                    _make_orthogonal(weight)
            for parameter, first in self._first:
                parameter.copy_(first)
            for name, buffer in (named for model in self._models for named in model.named_buffers()):
                if not torch.isfinite(buffer).all():
                    buffer.fill_(1.0 if name.endswith("running_var") else 0.0)
        for optimizer in self._optimizers:
            optimizer.state.clear()

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        import torch

        if math.isfinite(self._clip):
            parameters = [p for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
            if parameters:
                torch.nn.utils.clip_grad_norm_(parameters, self._clip)
        done = self._since[id(optimizer)] = self._since.get(id(optimizer), 0) + 1
        self._kept.append([group["lr"] for group in optimizer.param_groups])
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * self._factor * min(1.0, done / _WARM_UP)

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        for group, rate in zip(optimizer.param_groups, self._kept.pop(), strict=True):
            group["lr"] = rate


def _rates(optimizer: Any) -> list[float]:
    """The rates that an optimizer was made with, whatever a schedule has made of them since."""
    return [float(group.get("initial_lr", group["lr"])) for group in optimizer.param_groups]


def _renewable(module: Any) -> bool:
    """Whether a module can draw its weights anew, and all of them are there to be trained."""
    return hasattr(module, "reset_parameters") and all(p.requires_grad for p in module.parameters())


def _make_orthogonal(weight: Any) -> None:
    """Not every kind of number can be factorised: those of half the size are drawn at full size."""
    import torch

    kind = weight.dtype if weight.dtype in (torch.float32, torch.float64) else torch.float32
    drawn = torch.nn.init.orthogonal_(torch.empty_like(weight, dtype=kind), gain=math.sqrt(2.0))
    weight.copy_(drawn)


def _is_lazy(parameter: Any) -> bool:
    """Whether a parameter has no values yet."""
    return hasattr(parameter, "materialize")


def _is_embedding(module: Any) -> bool:
    return "Embedding" in type(module).__name__
