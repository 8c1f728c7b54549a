"""A recipe as a program that can be attempted again and again."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import torch

from akeso.treatment.alarm import alarm
from akeso.treatment.assembly import SUPPORTED, assemble
from akeso.treatment.isolation import attempt_in_child
from akeso.treatment.prescription import Edit, Prescription
from akeso.treatment.program import Attempt, Program
from akeso.treatment.recipe import Recipe
from akeso.treatment.training import OutOfTime, Training

#: Trainings that are kept so that they can be gone on with.
_KEPT = 16


class RecipeProgram(Program):
    """Runs a recipe under prescriptions; a training that was stopped is gone on with, not run again."""

    def __init__(self, recipe: Recipe, profile: str = "akeso") -> None:
        self.recipe = recipe
        self.profile = profile
        self._trainings: dict[tuple[Prescription, int], Training] = {}

    @property
    def resumable(self) -> bool:
        return not self.recipe.isolate

    @property
    def planned_steps(self) -> int | None:
        return self.recipe.planned_steps

    def describe(self) -> str:
        model = self.recipe.model
        name = getattr(model, "__name__", type(model).__name__)
        return f"{name}, {self.recipe.epochs} epochs of batches of {self.recipe.batch_size}"

    def refuses(self, edit: Edit) -> str | None:
        if edit.remedy not in SUPPORTED:
            return f"the loop of a recipe does this already ({edit.remedy})"
        return None

    def refusals(self, prescription: Prescription) -> tuple[tuple[Edit, str], ...]:
        if self.recipe.isolate:
            return ()
        key = (prescription, self.recipe.seed)
        try:
            training = self._trainings.get(key) or Training(
                self.recipe, prescription, self.recipe.seed, self.profile
            )
        except Exception:
            return ()  # the attempt itself will tell
        self._keep(*key, training)
        return tuple(training.built.refused)

    def stretch(self, prescription: Prescription) -> float:
        plain = self.recipe._train.steps(self.recipe.batch_size)
        for edit in prescription.of("set-batch-size"):
            steps = self.recipe._train.steps(max(1, int(edit.values["to"])))
            if plain and steps:
                return max(1.0, steps / plain)
        return 1.0

    def attempt(
        self,
        prescription: Prescription,
        *,
        seed: int | None = None,
        max_steps: int | None = None,
        stop_on_error: bool = False,
    ) -> Attempt:
        chosen = self.recipe.seed if seed is None else seed
        for edit in prescription.of("reseed"):
            chosen = int(edit.values["seed"])
        attempting = partial(self._attempt_here, prescription, chosen, max_steps, stop_on_error)
        if self.recipe.isolate:
            return attempt_in_child(self.recipe, prescription, chosen, attempting)
        return attempting()

    def _attempt_here(
        self, prescription: Prescription, seed: int, max_steps: int | None, stop_on_error: bool
    ) -> Attempt:
        """Make the attempt in this process; whatever it raises is told in the attempt."""
        began, before = time.perf_counter(), 0
        training: Training | None = self._trainings.get((prescription, seed))
        failed: str | None = None
        limit = self.recipe.time_limit
        try:
            with alarm(limit):
                if training is None:
                    training = Training(self.recipe, prescription, seed, self.profile)
                    self._keep(prescription, seed, training)
                else:
                    before = training.step + training.extra_steps
                deadline = None if limit is None else time.monotonic() + limit
                training.run(max_steps, deadline, stop_on_error)
        except OutOfTime:
            failed = f"ran longer than {limit:g} seconds"
        except (Exception, SystemExit) as error:
            failed = f"{type(error).__name__}: {error}"
        seconds = time.perf_counter() - began
        if training is None:
            return Attempt(prescription, seed, 0, seconds, failed=failed or "could not be built")
        if failed is not None:
            training.close()
            self._trainings.pop((prescription, seed), None)
        return self._told(training, failed, seconds, before)

    def _told(self, training: Training, failed: str | None, seconds: float, before: int) -> Attempt:
        built = training.built
        name = built.metric.name
        return Attempt(
            prescription=training.prescription,
            seed=training.seed,
            steps=training.step,
            seconds=seconds,
            metric=training.metric,
            metric_name=name if name.startswith("val_") or built.metric.function else f"val_{name}",
            higher_is_better=built.metric.higher_is_better,
            history=training.history,
            diagnoses=training.diagnoses,
            whole=training.whole and failed is None,
            failed=failed or (training.broken or None),
            refused=tuple(built.refused),
            curve=tuple(training.curve),
            planned_steps=training.planned,
            spent=training.step + training.extra_steps - before,
            model=built.model,
            chance=training.chance,
            notes=tuple(built.notes),
        )

    def at_its_best(self, attempt: Attempt) -> Attempt | None:
        training = self._trainings.pop((attempt.prescription, attempt.seed), None)
        if training is None:
            return None
        training.prescription = attempt.prescription.plus(Edit("keep-best-weights"))
        training.take_best()
        self._keep(training.prescription, attempt.seed, training)
        return self._told(training, None, 0.0, training.step + training.extra_steps)

    def _keep(self, prescription: Prescription, seed: int, training: Training) -> None:
        self._trainings[prescription, seed] = training
        while len(self._trainings) > _KEPT:
            oldest = next(iter(self._trainings))
            self._trainings.pop(oldest).close()

    def hand_over(self, attempt: Attempt) -> Any:
        training = self._trainings.pop((attempt.prescription, attempt.seed), None)
        if training is not None:
            training.close()
            return training.built.hand_over()
        if attempt.model is None or not attempt.prescription.of("scale-inputs"):
            return attempt.model
        with torch.random.fork_rng(devices=[]):
            built = assemble(self.recipe, attempt.prescription, attempt.seed)
        built.model.load_state_dict(attempt.model.state_dict())
        return built.hand_over()

    def close(self) -> None:
        """Let go of every training."""
        for training in self._trainings.values():
            training.close()
        self._trainings.clear()
