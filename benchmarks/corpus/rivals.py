"""What a user would install instead, attached from outside to the same runs.

torchmortem 0.1.1 is hooked to the model at its first training forward and told the loss after each optimizer
step. training-doctor 0.1.0 judges logged figures: it is given the loss, learning rate, gradient norm and
validation loss that were read in the run, in order. Both are used as their documentation shows.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from akeso.history import History

NAMES = ("torchmortem", "training-doctor")


def installed() -> list[str]:
    """Which of the two can be imported."""
    return [name for name in NAMES if find_spec(name.replace("-", "_")) is not None]


class _Attached:
    """One autopsy per optimizer, on the module through which its parameters are first used."""

    def __init__(self) -> None:
        self.optimizers: list[Any] = []
        self.autopsies: dict[int, Any] = {}
        self.depth = 0
        self.loss: float | None = None

    def before_forward(self, module: Any, inputs: Any) -> None:
        import torch
        from torchmortem import Autopsy

        self.depth += 1
        if self.depth > 1 or not torch.is_grad_enabled():
            return
        own = {id(parameter) for parameter in module.parameters()}
        for optimizer in self.optimizers:
            used = {id(p) for group in optimizer.param_groups for p in group["params"]}
            if id(optimizer) not in self.autopsies and own & used:
                self.autopsies[id(optimizer)] = Autopsy(module, optimizer=optimizer)
                self.autopsies[id(optimizer)].attach()

    def after_forward(self, module: Any, inputs: Any, output: Any) -> None:
        self.depth = max(0, self.depth - 1)

    def after_step(self, optimizer: Any, *_: Any) -> None:
        autopsy = self.autopsies.get(id(optimizer))
        if autopsy is not None and self.loss is not None:
            autopsy.step(loss=self.loss)


@contextlib.contextmanager
def autopsied() -> Iterator[list[dict[str, str]]]:
    """Let torchmortem follow all that is trained inside; the list holds its findings afterwards."""
    import torch
    from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
    from torch.optim.optimizer import register_optimizer_step_post_hook

    state, findings = _Attached(), []
    first_init, first_backward = torch.optim.Optimizer.__init__, torch.Tensor.backward

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        first_init(self, *args, **kwargs)
        state.optimizers.append(self)

    def backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.numel() == 1:
            state.loss = float(self.detach())
        return first_backward(self, *args, **kwargs)

    handles = [
        register_module_forward_pre_hook(state.before_forward),
        register_module_forward_hook(state.after_forward, always_call=True),
        register_optimizer_step_post_hook(state.after_step),
    ]
    torch.optim.Optimizer.__init__ = init  # type: ignore[method-assign]
    torch.Tensor.backward = backward  # type: ignore[method-assign]
    try:
        yield findings
    finally:
        torch.optim.Optimizer.__init__ = first_init  # type: ignore[method-assign]
        torch.Tensor.backward = first_backward  # type: ignore[method-assign]
        for handle in handles:
            handle.remove()
        for autopsy in state.autopsies.values():
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                autopsy.detach()
            for finding in autopsy.get_report().findings:
                findings.append({"problem": str(finding.title), "severity": finding.severity.name.lower()})


def doctor(history: History) -> list[dict[str, str]]:
    """What training-doctor says of the figures of a recorded run."""
    from training_doctor import Doctor

    metrics: dict[int, dict[str, float]] = {}
    for signal, scope, name in (
        ("loss", "", "loss"),
        ("lr", "0", "lr"),
        ("grad_norm", "", "grad_norm"),
        ("val_loss", "", "eval_loss"),
    ):
        series = history.series(signal, scope)
        for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=False):
            metrics.setdefault(step, {})[name] = value
    judge = Doctor()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for step in sorted(metrics):
            judge.log(step=step, **metrics[step])
    return [{"problem": found.problem, "severity": found.severity.value} for found in judge.diagnoses]
