"""The loop of one model of Keras, step by step, as it is told to those who listen."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

import torch

from akeso.errors import Stop
from akeso.keras.look import Look, NotLookedInto, State
from akeso.keras.means import Means
from akeso.keras.mirrors import MIRRORS, as_tensor
from akeso.keras.replay import told
from akeso.torch.keras.taps import StandIn
from akeso.torch.taps import Taps

#: How far apart the same loss may be, computed twice.
_ALIKE: Final = 0.01


class Backend(Protocol):
    """What differs between the libraries that Keras runs on."""

    def number(self, value: Any) -> float:
        """A logged value as a number."""

    def taken(self, iterator: Any, most: int) -> list[Any] | None:
        """The next batches of an iterator; ``None`` where that cannot be had."""

    def again(self, iterator: Any, batches: Sequence[Any]) -> Any:
        """An iterator of the same kind that gives these batches."""

    def state(self, model: Any, given: tuple[Any, ...]) -> State:
        """The values of the variables before the step."""

    def trained(self, model: Any, outcome: Any) -> list[Any]:
        """The values of what is trained after the step."""

    def keep(self, model: Any, outcome: Any) -> None:
        """Let a model have what a step has made of it, even if nothing comes after that."""

    def counted(self, model: Any, outcome: Any, metric: Any) -> float:
        """Samples that have gone into a metric."""

    def ready(self, model: Any, batch: Any) -> bool:
        """Whether the model can be looked into with this batch."""

    def once_ready(self, model: Any, act: Callable[[], None]) -> AbstractContextManager[None]:
        """Have something done inside of the block as soon as the model can be looked into."""

    def look(self, model: Any, state: State, batch: Any) -> Look:
        """Run forward and back, and change nothing."""


class Loop:
    """Stands in place of a model's ``train_function``."""

    def __init__(self, taps: Taps, backend: Backend, model: Any) -> None:
        self._taps, self._backend = taps, backend
        self._model = weakref.ref(model)
        self.original: Any = model.train_function
        self._means = Means(backend.number)
        self._tracker: Any = None
        self._known = False  # whether it is known if the logged loss is a mean
        self._part = 0  # batches whose gradients wait for more
        self._rate = 0.0
        self._blind = ""  # why no step can be looked into
        self._deaf = False  # nothing can be told
        self._trusted = not self._own_step(model)  # whether a look sees what the step does
        self._trial: float | None = None
        self._mirror = MIRRORS.known(model)
        self._stand: StandIn | None = None
        self._optimizer: Any = None
        self.running = False
        """Whether a step is under way."""
        self.left: int | None = None
        """Batches left in this epoch, where that is known."""

    def __call__(self, *given: Any) -> Any:
        """Take one step, or as many as Keras takes at once."""
        taps, model = self._taps, self._model()
        if self._deaf or model is None or not taps.concerns(self._mirror):
            return self._step(given)
        if taps.looking and (self._part + 1) % self._gathered(model) == 0:
            return self._seen(model, given)
        outcome = self._step(given)
        self._tell(self._over, model, outcome, self._steps(model))
        return outcome

    def _step(self, given: Sequence[Any]) -> Any:
        self.running = True
        try:
            return self.original(*given)
        finally:
            self.running = False

    def _guard(self, act: Any, *args: Any) -> Any:
        """Do something of our own; an error in it is said once and ends the looking, never the training."""
        try:
            return act(*args)
        except NotLookedInto as reason:
            self._give_up(str(reason))
        except Exception as error:
            looking = act == self._before
            if looking and self._own_step(self._model()):
                self._give_up(f"{type(error).__name__}: {error}")
            else:
                self._deaf = not looking
                self._give_up("an error of akeso's own")
                self._taps.tell("failed", "looking into Keras" if looking else "hearing Keras", error)
        return None

    def _tell(self, act: Any, model: Any, outcome: Any, *more: Any) -> None:
        """Tell of a step; who listens may end the training there, with what the step has made of the model."""
        try:
            self._guard(act, model, outcome, *more)
        except Stop:
            self._backend.keep(model, outcome)
            raise

    def _give_up(self, reason: str) -> None:
        self._blind = reason
        self._taps.tell("unlooked", reason)

    @staticmethod
    def _own_step(model: Any) -> bool:
        """Whether a model has a step or a loss of its own, of which a look may know nothing."""
        own = ("train_step", "compute_loss")
        return any(not getattr(type(model), name).__module__.startswith("keras.") for name in own)

    @staticmethod
    def _gathered(model: Any) -> int:
        """Batches whose gradients make one step."""
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        return getattr(optimizer, "gradient_accumulation_steps", None) or 1

    def _steps(self, model: Any) -> int:
        """Batches of the call that has just been made."""
        steps = int(model.steps_per_execution)
        if self.left is not None:
            steps = min(steps, self.left) if self.left > 0 else steps
            self.left -= steps
        return steps

    # a step that is looked into ----------------------------------------------------------------------

    def _seen(self, model: Any, given: tuple[Any, ...]) -> Any:
        """Look at the first batch of a call, take the step with it, and those that are left."""
        *state, iterator = given
        began = time.perf_counter()
        batches = self._backend.taken(iterator, int(model.steps_per_execution))
        self._taps.tell("spent", time.perf_counter() - began)
        if not batches:
            if batches is None:
                self._guard(self._give_up, "several devices share a step")
            outcome = self._step(given)  # which finds out for itself that there is nothing left
            self._tell(self._over, model, outcome, self._steps(model))
            return outcome
        first = self._backend.again(iterator, batches[:1])
        looked: list[bool] = []

        def look() -> None:
            looked.append(bool(self._guard(self._before, model, given, batches[0])))

        if self._blind or model.optimizer is None or self._backend.ready(model, batches[0]):
            look()
            outcome = self._step((*state, first))
        else:
            with self._backend.once_ready(model, look):
                outcome = self._step((*state, first))
        self._tell(self._after, model, outcome, any(looked))
        if len(batches) > 1:
            rest = self._backend.again(iterator, batches[1:])
            state = [outcome[1]] if state else []
            outcome = self._step((*state, rest))
            self._tell(self._over, model, outcome, len(batches) - 1)
        if self.left is not None:
            self.left -= len(batches)
        return outcome

    def _before(self, model: Any, given: tuple[Any, ...], batch: Any) -> bool:
        """Look into the step with this batch; whether that could be done."""
        backend, taps = self._backend, self._taps
        if self._blind or model.optimizer is None:
            return False
        began = time.perf_counter()
        state = backend.state(model, given)
        look = backend.look(model, state, batch)
        loss = as_tensor(look.loss)
        assert loss is not None
        if not self._trusted:
            self._trial = float(loss)
            taps.tell("spent", time.perf_counter() - began)
            return False
        MIRRORS.of(model)
        frozen = [variable for variable in model.non_trainable_variables if variable.trainable is False]
        if MIRRORS.unfilled(_weights(frozen, model)):
            MIRRORS.fill(model.non_trainable_variables, state.others)
        variables = model.trainable_variables
        MIRRORS.fill(variables, state.trainable)
        events = told(look.captured.events, look.captured.tensors, MIRRORS)
        self._rate = look.rate
        stand = self._standing(model)
        stand.gradients = {}
        for variable, gradient in zip(variables, look.gradients, strict=True):
            tensor = None if gradient is None else as_tensor(gradient)
            if tensor is not None:
                parameter = MIRRORS.parameter(variable)
                parameter.grad = stand.gradients[id(parameter)] = tensor.to(parameter.dtype)
        taps.tell("looked", events, time.perf_counter() - began - look.once, look.once)
        taps.tell("before_backward", loss.float().reshape(()))
        taps.tell("before_step", stand, False)
        return True

    def _after(self, model: Any, outcome: Any, looked: bool) -> None:
        """The step that was looked into is done."""
        if not looked:
            self._taps.tell("unlooked", self._blind)
            loss = self._over(model, outcome, 1)
            if self._trial is not None:
                self._judge(self._trial, loss)
            return
        began = time.perf_counter()
        self._logged(model, outcome, 1)
        MIRRORS.fill(model.trainable_variables, self._backend.trained(model, outcome))
        self._taps.tell("spent", time.perf_counter() - began)
        self._part = 0
        stand = self._standing(model)
        self._taps.tell("after_step", stand, False)
        stand.gradients = {}
        MIRRORS.release(model.trainable_variables)

    def _judge(self, trial: float, logged: Any) -> None:
        """Whether a step that somebody wrote himself has the loss that a look found for it."""
        found = math.nan if logged is None else float(logged)
        self._trusted, self._trial = math.isclose(trial, found, rel_tol=_ALIKE), None
        if not self._trusted:
            self._give_up("its own train_step computes something else than compute_loss")

    # any other ---------------------------------------------------------------------------------------

    def _over(self, model: Any, outcome: Any, steps: int) -> Any:
        """Steps that were not looked into are done; gives their loss."""
        taps = self._taps
        loss = self._logged(model, outcome, steps)
        for number in range(steps):
            if loss is not None and number == steps - 1:
                taps.tell("computed", loss)
            self._part += 1
            if self._part < self._gathered(model):
                continue
            self._part = 0
            stand = self._standing(model)
            if not taps.calm:
                self._show(model, outcome)
                taps.stepping(stand, closure=False)
            taps.tell("after_step", stand, False)
        return loss

    def _show(self, model: Any, outcome: Any) -> None:
        """Weights that were never looked at are shown as they are, before they are listed."""
        MIRRORS.of(model)
        if MIRRORS.unfilled(model.trainable_variables):
            MIRRORS.fill(model.trainable_variables, self._backend.trained(model, outcome))

    def _logged(self, model: Any, outcome: Any, steps: int) -> Any:
        """The loss of these steps, to be read later."""
        logs = outcome[0] if isinstance(outcome, tuple) else outcome
        logged = logs.get("loss") if isinstance(logs, dict) else None
        if logged is None:
            return None
        if not self._known:
            self._known = True
            self._tracker = _mean_of_losses(model)
            count = self._count(model, outcome)
            self._means.averaged, self._means.batch = count > 0, count / steps or 1.0
        return self._means.add(logged, steps)

    def _count(self, model: Any, outcome: Any) -> float:
        return self._backend.counted(model, outcome, self._tracker) if self._tracker is not None else 0.0

    def epoch_ends(self) -> None:
        """Keras is about to begin its means anew, for a batch, unless an epoch is said to begin."""
        self.left = 1
        model = self._model()
        if model is not None and self._known and self._means.averaged:
            self._means.end(self._count(model, None))

    def _standing(self, model: Any) -> StandIn:
        """The stand-in of the model's optimizer, as it is now."""
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        if self._stand is None or self._optimizer is not optimizer:
            self._optimizer = optimizer
            reference = self._model

            def values(_: Any) -> list[torch.Tensor]:
                found = reference()
                return [] if found is None else [MIRRORS.parameter(one) for one in found.trainable_variables]

            self._stand = StandIn(optimizer, values, lambda _: self._rate)
        return self._stand


def _weights(variables: Sequence[Any], model: Any) -> list[Any]:
    """Those among variables that layers keep to be trained, frozen as they may be."""
    kept = {id(one) for layer in model._flatten_layers() for one in layer._trainable_variables}
    return [variable for variable in variables if id(variable) in kept]


def _mean_of_losses(model: Any) -> Any:
    """The metric of a model in which the losses of its steps are averaged; ``None`` where there is none."""
    named = [metric for metric in model.metrics if metric.name == "loss" and hasattr(metric, "count")]
    return named[0] if named else None
