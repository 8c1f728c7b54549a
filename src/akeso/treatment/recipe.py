"""A training taken apart: model, data, loss, optimizer, length."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from akeso.errors import BadInput
from akeso.torch.surgery.losses import TASK_LOSSES, TaskLoss
from akeso.torch.surgery.optimizers import build_optimizer
from akeso.treatment.batches import Batches, TensorBatches, as_batches
from akeso.treatment.metrics import NAMED

OptimizerFactory = Callable[[Any], torch.optim.Optimizer]


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that is needed to run a training again.

    Args:
        model: A function that builds the model, or a model, whose present weights every run then starts from.
        train: Training data: ``(inputs, targets)`` as tensors or arrays, a ``Dataset`` or a ``DataLoader``.
        val: Held-out data in the same forms; without any, a fifth of the training data is held out.
        loss: ``loss(output, target)``, a module or function, or a name of ``torch.nn.functional``.
        optimizer: A name, a class of ``torch.optim``, a function of the parameters, ``(name, options)``, or
            an optimizer, of which kind and options are taken.
        lr: Learning rate, where the optimizer does not bring its own.
        epochs: Passes over the training data.
        batch_size: Samples per step; a loader's own where one is given.
        scheduler: A function of the optimizer that builds a scheduler.
        scheduler_every: Whether the scheduler steps once per "epoch" or once per "step".
        metric: A function of all held-out outputs and targets, or a name; inferred from the task when absent.
        higher_is_better: For a metric of your own; True when absent.
        threshold: Where a single output unit says yes; inferred when absent.
        seed: Of weights, data order and everything else that is drawn.
        device: Where to train.
        time_limit: Seconds that one attempt may take before it is given up.
        isolate: Run attempts in processes of their own, so that a crash of the interpreter fails one alone.

    Example:
        >>> import torch
        >>> x = torch.randn(64, 3)
        >>> recipe = Recipe(
        ...     lambda: torch.nn.Linear(3, 1), (x, x.sum(1, keepdim=True)), (x, x.sum(1, keepdim=True)),
        ...     loss="mse_loss", optimizer="SGD", lr=0.1, epochs=2, batch_size=16,
        ... )
        >>> recipe.planned_steps
        8
    """

    model: nn.Module | Callable[[], nn.Module]
    train: Any
    val: Any = None
    loss: Any = "cross_entropy"
    optimizer: Any = "Adam"
    lr: float | None = None
    epochs: int = 10
    batch_size: int = 0
    scheduler: Callable[[torch.optim.Optimizer], Any] | None = None
    scheduler_every: str = "epoch"
    metric: Any = None
    higher_is_better: bool | None = None
    threshold: float | None = None
    seed: int = 0
    device: str | torch.device | None = None
    time_limit: float | None = None
    isolate: bool = False
    _train: Batches = field(init=False, repr=False, compare=False)
    _val: Batches = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.model, nn.Module) and not callable(self.model):
            raise BadInput(
                "model must be a torch.nn.Module or a function that builds one, "
                f"but got {type(self.model).__name__}."
            )
        if isinstance(self.model, type) and issubclass(self.model, nn.Module) is False:
            raise BadInput(f"model is the class {self.model.__name__}, which is no torch.nn.Module.")
        if not isinstance(self.epochs, int) or self.epochs < 1:
            raise BadInput(f"epochs must be a whole number of at least 1, but got {self.epochs!r}.")
        if self.scheduler_every not in ("epoch", "step"):
            raise BadInput(f"scheduler_every must be 'epoch' or 'step', but got {self.scheduler_every!r}.")
        if (
            not callable(self.loss)
            and self.loss not in TASK_LOSSES
            and not hasattr(nn.functional, str(self.loss))
        ):
            raise BadInput(f"loss must be callable or a name of torch.nn.functional, but got {self.loss!r}.")
        if callable(self.loss) and isinstance(self.loss, type):
            raise BadInput(
                f"loss is the class {self.loss.__name__}; give an instance: loss={self.loss.__name__}()."
            )
        self._check_circumstances()
        train, size = as_batches(self.train, "train")
        if self.batch_size < 0:
            raise BadInput(f"batch_size must be positive, but got {self.batch_size}.")
        if not self.batch_size:
            object.__setattr__(self, "batch_size", size or 32)
        if self.val is None:
            train, val = _hold_out(train, self.seed)
        else:
            val, _ = as_batches(self.val, "val")
        object.__setattr__(self, "_train", train)
        object.__setattr__(self, "_val", val)
        self.make_optimizer([nn.Parameter(torch.zeros(1))])  # says now what is wrong with it

    def _check_circumstances(self) -> None:
        """Say now what is wrong with the seed, the device, the time limit and the metric."""
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise BadInput(f"seed must be a whole number, but got {self.seed!r}.")
        if self.lr is not None and (isinstance(self.lr, str) or not 0 < float(self.lr) < math.inf):
            raise BadInput(f"lr must be a positive number, but got {self.lr!r}.")
        if self.time_limit is not None and not self.time_limit > 0:
            raise BadInput(f"time_limit must be a positive number of seconds, but got {self.time_limit!r}.")
        try:
            torch.empty(0, device=self.place)
        except (RuntimeError, AssertionError) as error:
            said = str(error).splitlines()[0]
            raise BadInput(f"device {self.device!r} cannot be trained on here: {said}") from error
        if isinstance(self.metric, str) and self.metric.removeprefix("val_") not in NAMED:
            raise BadInput(
                f"metric must be a function or one of {', '.join(NAMED)}, but got {self.metric!r}."
            )

    @property
    def planned_steps(self) -> int | None:
        """Optimizer steps of one plain training, where the data knows its length."""
        steps = self._train.steps(self.batch_size)
        return None if steps is None else steps * self.epochs

    @property
    def place(self) -> torch.device:
        """The device to train on."""
        return torch.device(self.device) if self.device is not None else torch.device("cpu")

    def make_loss(self) -> Callable[..., torch.Tensor]:
        """The loss as a callable."""
        if callable(self.loss):
            return self.loss  # type: ignore[no-any-return]
        return TaskLoss(self.loss) if self.loss in TASK_LOSSES else getattr(nn.functional, self.loss)

    def make_optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        """A fresh optimizer over the parameters."""
        given, options = self.optimizer, {}
        if isinstance(given, tuple | list):
            if not given or len(given) > 3:
                raise BadInput(f"optimizer must be (name, options), but got {given!r}.")
            options = dict(next((part for part in given[1:] if isinstance(part, Mapping)), {}))
            rates = [part for part in given[1:] if isinstance(part, int | float)]
            options |= {"lr": rates[0]} if rates else {}
            given = given[0]
        if isinstance(given, torch.optim.Optimizer):
            known = set(type(given).__init__.__code__.co_varnames)
            options = {key: value for key, value in given.defaults.items() if key in known} | options
            given = type(given)
        rate = self.lr if self.lr is not None else options.pop("lr", None)
        if isinstance(given, str):
            return build_optimizer(given, parameters, rate, options)
        if isinstance(given, type) and issubclass(given, torch.optim.Optimizer):
            options |= {} if rate is None else {"lr": rate}
            made_of_class: torch.optim.Optimizer = given(parameters, **options)
            return made_of_class
        if callable(given):
            made = given(parameters)
            if isinstance(made, torch.optim.Optimizer):
                return made
            raise BadInput(
                f"optimizer(parameters) must give a torch optimizer, but gave {type(made).__name__}."
            )
        raise BadInput(
            "optimizer must be a name such as 'Adam', a class of torch.optim, a function of the parameters, "
            f"(name, options) or an optimizer, but got {type(given).__name__}."
        )


def _hold_out(train: Batches, seed: int) -> tuple[Batches, Batches]:
    if not isinstance(train, TensorBatches):
        raise BadInput("val is needed when train is a loader or a dataset that is not in memory.")
    count = len(train.tensors[0])
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    held = max(1, count // 5)
    return (
        TensorBatches(tuple(tensor[order[held:]] for tensor in train.tensors), train.drop_last),
        TensorBatches(tuple(tensor[order[:held]] for tensor in train.tensors)),
    )
