"""One training of a recipe, which can be stopped at a step and gone on with later."""

from __future__ import annotations

import copy
import math
import random
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from akeso.diagnosis import Diagnosis
from akeso.history import History
from akeso.torch.attached import keep_attached
from akeso.torch.guards import guard
from akeso.torch.surgery.optimizers import clip, scale_rates
from akeso.treatment.assembly import Assembly, assemble, moved
from akeso.treatment.metrics import chance
from akeso.treatment.prescription import Prescription
from akeso.treatment.range_test import find_rate
from akeso.treatment.recipe import Recipe

#: Held-out data is looked at this often over a training.
EVALUATIONS = 20


class OutOfTime(Exception):
    """The attempt has used up its time."""


class Randomness:
    """The random state of one training, put in place while it runs and taken out while others do."""

    def __init__(self, seed: int) -> None:
        self._torch = torch.Generator().manual_seed(seed).get_state()
        self._cuda: list[Tensor] = []
        self._numpy = np.random.RandomState(seed % 2**32).get_state()
        self._python = random.Random(seed).getstate()
        self._seed = seed
        self._outer: tuple[Any, ...] = ()
        self._first = True

    def __enter__(self) -> None:
        self._outer = (torch.get_rng_state(), np.random.get_state(), random.getstate())
        torch.set_rng_state(self._torch)
        np.random.set_state(self._numpy)
        random.setstate(self._python)
        if torch.cuda.is_initialized():
            if self._first:
                torch.cuda.manual_seed_all(self._seed)
            else:
                torch.cuda.set_rng_state_all(self._cuda)

    def __exit__(self, *_: object) -> None:
        self._torch, self._numpy, self._python = (
            torch.get_rng_state(),
            np.random.get_state(),
            random.getstate(),
        )
        if torch.cuda.is_initialized():
            self._cuda, self._first = torch.cuda.get_rng_state_all(), False
        torch.set_rng_state(self._outer[0])
        np.random.set_state(self._outer[1])
        random.setstate(self._outer[2])


class Training:
    """A recipe under a prescription, from its first step to wherever it is told to stop."""

    def __init__(self, recipe: Recipe, prescription: Prescription, seed: int, profile: str = "akeso") -> None:
        self.recipe = recipe
        self.prescription = prescription
        self.seed = seed
        self.step = 0
        self.extra_steps = 0  # of a range test
        self.ended = False
        self.curve: list[tuple[int, float]] = []
        self.val_losses: list[tuple[int, float]] = []
        self.broken = ""
        self.chance: float | None = None
        self.metric: float | None = None  # of the weights as they are
        self._best: tuple[float, dict[str, Tensor]] | None = None
        self._generator = torch.Generator().manual_seed(seed)
        self._randomness = Randomness(seed)
        with self._randomness:
            self.built: Assembly = assemble(recipe, prescription, seed)
            self._find_rate()
        self.planned = self._planned()
        self._every = max(1, round((self.planned or 400) / EVALUATIONS))
        self._watch = _Watched(self.built, self.planned, profile, self.built.train.size)
        self._loop = self._steps()

    def _planned(self) -> int | None:
        steps = self.built.train.steps(self.built.batch_size)
        return None if steps is None else steps * self.recipe.epochs

    def _find_rate(self) -> None:
        for edit in self.prescription.of("find-learning-rate"):
            low, high = float(edit.values.get("low", 1e-6)), float(edit.values.get("high", 1.0))
            steps = int(edit.values.get("steps", 40))
            try:
                rate = find_rate(self.built, self.recipe.place, low, high, steps, self.seed)
            except Exception as error:
                self.built.refused.append((edit, f"{type(error).__name__}: {error}"))
                continue
            self.extra_steps += steps
            scale_rates(self.built.optimizer, to=rate)
            self.built.notes.append(f"range test: learning rate {rate:.3g}")

    def run(self, until: int | None, deadline: float | None = None, stop_on_error: bool = False) -> None:
        """Go on to step ``until``, or to the end."""
        if self.ended or (until is not None and self.step >= until):
            return
        with self._randomness, self._watch:
            for _ in self._loop:
                if deadline is not None and time.monotonic() > deadline:
                    raise OutOfTime
                if until is not None and self.step >= until:
                    break
                if stop_on_error and self.step % self._every == 0 and self._in_error():
                    break
            else:
                self.ended = True
            if not self.curve or self.curve[-1][0] != self.step:
                self._evaluate()
            if self.ended:
                if self.prescription.of("keep-best-weights"):
                    self.take_best()
                self._watch.finish()

    def take_best(self) -> None:
        """Put the weights of the best evaluation in place."""
        if self._best is not None:
            self.metric, state = self._best
            self.built.model.load_state_dict(state)

    def _in_error(self) -> bool:
        return any(found.severity == "error" for found in self.diagnoses)

    @property
    def whole(self) -> bool:
        """Whether the training came to its planned end."""
        return self.ended and not self.broken

    @property
    def history(self) -> History:
        """What was measured so far."""
        return self._watch.history

    @property
    def diagnoses(self) -> tuple[Diagnosis, ...]:
        """What is wrong so far, roots first."""
        return self._watch.diagnoses

    def close(self) -> None:
        """Stop watching."""
        self._watch.finish()

    def _steps(self) -> Iterator[int]:
        """Yields after every step, at points where nothing is half done."""
        built, place = self.built, self.recipe.place
        back = next(iter(self.prescription.of("roll-back")), None)
        skip_from = int(back.values["step"]) if back else -1
        skip = int(back.values.get("skip", 0)) if back else 0
        for _ in range(self.recipe.epochs):
            for inputs, target in built.train.epoch(built.batch_size, self._generator):
                if back is not None and self.step == skip_from and skip > 0:
                    skip -= 1
                    if skip == 0:
                        scale_rates(built.optimizer, factor=float(back.values.get("factor", 1.0)))
                        skip_from = -1
                    continue
                self._one(built.prepared(inputs, place), moved((target,), place)[0])
                if self.step % self._every == 0:
                    self._evaluate()
                    if self._hopelessly_broken():
                        return
                yield self.step
            if built.scheduler is not None and self.recipe.scheduler_every == "epoch":
                self._advance_schedule()

    def _one(self, inputs: tuple[Any, ...], target: Any) -> None:
        built = self.built
        built.model.train()
        built.optimizer.zero_grad()
        with guard() if built.guarded else nullcontext():
            with keep_attached() if built.attached else nullcontext():
                output = built.model(*inputs)
            loss = built.loss(output, target)
        loss.backward()
        if built.clip is not None:
            clip((p for group in built.optimizer.param_groups for p in group["params"]), *built.clip)
        rates = [group["lr"] for group in built.optimizer.param_groups]
        if self.step < built.warm_up:
            for group in built.optimizer.param_groups:
                group["lr"] *= (self.step + 1) / (built.warm_up + 1)
        built.optimizer.step()
        if self.step < built.warm_up:
            for group, rate in zip(built.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate
        if built.scheduler is not None and self.recipe.scheduler_every == "step":
            built.scheduler.step()
        self.step += 1

    def _advance_schedule(self) -> None:
        scheduler = self.built.scheduler
        if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            self._evaluate()
            scheduler.step(self.val_losses[-1][1])
        else:
            scheduler.step()

    def _hopelessly_broken(self) -> bool:
        """Weights that are not finite never come back."""
        total = sum(float(p.detach().sum()) for p in self.built.model.parameters() if p.is_floating_point())
        if not math.isfinite(total):
            self.broken = "weights are not finite"
        return bool(self.broken)

    def _evaluate(self) -> None:
        built, place = self.built, self.recipe.place
        model = built.model
        model.eval()
        outputs, targets, total, count = [], [], 0.0, 0
        with torch.no_grad():
            for inputs, target in self.recipe._val.epoch(max(256, built.batch_size), None):
                truth = moved((target,), place)[0]
                output = model(*built.prepared(inputs, place))
                total += float(built.loss(output, truth)) * len(truth)
                count += len(truth)
                outputs.append(output)
                targets.append(truth)
            whole, truth = torch.cat(outputs), torch.cat(targets)
            if built.restore is not None:
                whole = built.restore(whole)
            value = built.metric(whole, truth, built.original_loss)
            self.chance = chance(built.metric, truth) if self.chance is None else self.chance
        model.train()
        self.curve.append((self.step, value))
        self.metric = value
        sign = 1.0 if built.metric.higher_is_better else -1.0
        if math.isfinite(value) and (self._best is None or sign * value > sign * self._best[0]):
            self._best = (value, self.weights())
        self.val_losses.append((self.step, total / max(1, count)))

    def weights(self) -> dict[str, Tensor]:
        """A copy of the model's present state."""
        return copy.deepcopy(self.built.model.state_dict())


class _Watched:
    """The watch over one training, listening only while that training runs."""

    def __init__(self, built: Assembly, planned: int | None, profile: str, size: int | None) -> None:
        from akeso.torch.watching import watch

        # All of the time may go into watching: what is seen must not depend on the clock.
        self._watch = watch(built.model, built.optimizer, budget=1.0, planned_steps=planned, profile=profile)
        self._watch.pause()
        self._finished = False
        self._known = {**built.facts, **({} if size is None else {"dataset_size": size})}

    def __enter__(self) -> None:
        if not self._finished:
            self._watch.resume()

    def __exit__(self, *_: object) -> None:
        if not self._finished:
            self._watch.pause()

    @property
    def history(self) -> History:
        history = self._watch.history
        for name, value in self._known.items():
            # A loss or an activation of the user's own hides from the watch what the recipe knows.
            if history.facts.get(name) in (None, "unknown", "custom", {}):
                history.facts[name] = value
        return history

    @property
    def diagnoses(self) -> tuple[Diagnosis, ...]:
        return self._watch.diagnoses

    def finish(self) -> None:
        """The training is over."""
        if not self._finished:
            self._finished = True
            self._watch.close()
