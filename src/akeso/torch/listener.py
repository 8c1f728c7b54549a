"""What may be heard of a training: the calls that the taps make, and how much of them is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsFloat

import torch

from akeso.torch.events import Figures, Seen


class Listener:
    """What may be heard; the base class hears nothing."""

    #: Whether nothing of the step under way is wanted but its loss and its end: ``before_step`` is not told.
    calm = False
    #: The thread in which it began to listen.
    home = 0
    #: Whether the step under way is looked into.
    looking = False
    #: Whether the end of a backward pass is wanted too.
    follows = False

    def before_backward(self, loss: Any) -> None:
        """``backward`` is about to run from ``loss`` (a tensor or a sequence of them)."""

    def after_backward(self) -> None:
        """``backward`` has run."""

    def before_step(self, optimizer: torch.optim.Optimizer, closure: bool) -> None:
        """An optimizer is about to step."""

    def after_step(self, optimizer: torch.optim.Optimizer, closure: bool) -> None:
        """An optimizer has stepped."""

    def loss_scaled(self, loss: Any, scaled: Any, scaler: Any) -> None:
        """A gradient scaler has multiplied ``loss``."""

    def clipped(self, kind: str, limit: float, norm: torch.Tensor | None) -> None:
        """The script has clipped gradients; ``norm`` is the one before clipping."""

    def gradients_off(self) -> None:
        """The script has entered ``no_grad`` or ``inference_mode``."""

    def gradients_on(self) -> None:
        """The script has left it."""

    def mode_set(self, module: torch.nn.Module, training: bool) -> None:
        """``module.train()`` or ``module.eval()`` was called."""

    def loader_started(self, loader: Any) -> None:
        """A data loader begins a pass."""

    def fetching(self) -> None:
        """A data loader is about to fetch a batch."""

    def aside(self, begins: bool) -> None:
        """Keras computes a loss or a metric of its own, or has: what it calls for that says nothing."""

    def compared(self, loss: Any, target: Any, prediction: Any, value: Any, weighted: bool) -> None:
        """A loss of Keras has compared a prediction with a target."""

    def concerned(self, model: torch.nn.Module) -> bool:
        """Whether this model is listened to."""
        return True

    def computed(self, loss: SupportsFloat) -> None:
        """A step that torch does not run had this loss; the number may be read later."""

    def looked(self, events: Sequence[Seen], seconds: float, once: float) -> None:
        """A step that torch does not run was looked into, in ``seconds``, and ``once`` for all that will be."""

    def unlooked(self, reason: str) -> None:
        """The step under way cannot be looked into; for a ``reason``, none of those to come can be."""

    def by_hand(self) -> None:
        """An optimizer has stepped in a loop that is not watched."""

    def spent(self, seconds: float) -> None:
        """Watching has taken so long."""

    def epoch(self, batches: int | None, samples: int | None, batch_size: int | None) -> None:
        """A pass over the training data begins."""

    def evaluated(self, figures: Figures) -> None:
        """An evaluation that torch does not run has ended."""

    def compiling(self, thing: Any) -> None:
        """``torch.compile`` was called."""

    def capturing(self, begins: bool) -> None:
        """A CUDA graph is being captured, or has been: nothing is told in between."""

    def failed(self, where: str, error: Exception) -> None:
        """A method of this listener raised ``error``; it will not be called again at ``where``."""
