"""The watch on one trial: findings of the probe become calls, within steps and at the end of epochs."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from akeso.detectors.epochs import PLANNED, REPORTED
from akeso.diagnosis import Diagnosis
from akeso.errors import AkesoError, BadInput, Stop
from akeso.history import History
from akeso.search._safely import mention, safely
from akeso.search.profiles import SearchProfile
from akeso.search.verdict import Verdict

#: How the trials of a search are watched: there are many short ones, and their curves are judged as well.
FRUGALLY: Final[Mapping[str, Any]] = {"frugal": True, "budget": 0.005}
#: Has ``open`` in threads in which trials are watched: their inspections, that of the innermost trial last.
_HERE = threading.local()


class Ending(Stop):
    """Ends a trial from inside its loop; never leaves the ``with`` block of the trial's watch.

    It derives from ``BaseException``, so that an ``except Exception`` around a training step does not turn a
    trial that was ended on purpose into one that goes on broken.
    """

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.sentence)
        self.verdict = verdict


def models_of(model: Any) -> list[Any]:
    """The models of a trial: one, several, or none."""
    if model is None:
        return []
    several = isinstance(model, Iterable) and not hasattr(model, "parameters") and not isinstance(model, str)
    models = (list(model.values()) if isinstance(model, Mapping) else list(model)) if several else [model]
    for one in models:
        if not hasattr(one, "parameters"):
            raise BadInput(
                "the model of a trial is a torch.nn.Module, several of them in a list, or None, but got "
                f"{type(one).__name__}"
            )
    return models


def optimizers_of(optimizer: Any) -> list[Any]:
    """The optimizers of a trial: one, several, or none that were given."""
    several = isinstance(optimizer, Iterable) and not isinstance(optimizer, str)
    given = (optimizer.values() if isinstance(optimizer, Mapping) else optimizer) if several else [optimizer]
    optimizers = [one for one in given if one is not None]
    for one in optimizers:
        if not hasattr(one, "param_groups"):
            raise BadInput(
                "the optimizer of a trial is a torch.optim.Optimizer, several of them in a list, or None, but got "
                f"{type(one).__name__}"
            )
    if not optimizers:
        return []
    from akeso.torch.watching import real

    return [real(one) for one in optimizers]


class Inspection:
    """Watches the models of one trial, if it has any, and tells ``found`` of every problem once."""

    def __init__(
        self,
        models: list[Any],
        optimizers: list[Any],
        profile: SearchProfile,
        found: Callable[[Diagnosis], None],
        *,
        run: Path | None = None,
        planned_steps: int | None = None,
        epochs: int | None = None,
    ) -> None:
        self.models, self._optimizers = models, optimizers
        self._profile, self._found = profile, found
        self._run, self._planned, self._epochs = run, planned_steps, epochs
        self._watch: Any = None
        #: Steps that were watched before a fresh start.
        self.before = 0
        self._begun = 0  # of the present watch: the first step since the last report
        self._settling: Any = None
        self._around: list[Inspection] = []  # those that are open in its thread
        self._paused: list[Inspection] = []  # those of them that hear nothing before this one has closed
        self._deaf = False
        #: Whether the last report was of a model whose running statistics had not left their start.
        self.unsettled = False

    def start(self) -> None:
        """Puts the probe in; without a model there is nothing to probe, and only curves are judged."""
        self._pause_outer()
        if not self.models:
            return
        import akeso
        from akeso.torch.settling import Settling

        try:
            self._settling = Settling(model for model in self.models if hasattr(model, "modules"))
            self._watch = akeso.watch(
                self.models,
                self._optimizers or None,
                run=self._run,
                profile=self._profile.detectors,
                planned_steps=self._planned,
                statistics=self._profile.detectors == "bttackler",
                **(FRUGALLY if self._profile.detectors == "akeso" else {}),
                on_finding=self._found,
            )
        except BaseException as error:
            self.close()
            if isinstance(error, AkesoError) or not isinstance(error, Exception):
                raise
            mention(error)  # its network goes unwatched: curves are judged all the same
        if self._watch is not None and self._epochs is not None:
            self._watch.history.facts.update({REPORTED: [], PLANNED: self._epochs})

    def _pause_outer(self) -> None:
        """A trial may search by itself: what the trials of that search train is none of its training."""
        self._around = _HERE.__dict__.setdefault("open", [])
        for outer in self._around:
            if outer._watch is not None and not outer._deaf and _apart(outer.models, self.models):
                outer._watch.pause()
                outer._deaf = True
                self._paused.append(outer)
        self._around.append(self)

    def epoch_ended(self) -> float:
        """The trial reported: the step that comes next is the first of an epoch. Returns its mean training loss."""
        if self._watch is None:
            return math.nan
        self.unsettled = safely(self._settling.unsettled, False)
        begun, self._begun = self._begun, int(self._watch.steps)
        if self._epochs is not None:
            self._watch.history.facts[REPORTED].append(self._begun)
        loss = self._watch.history.series("loss")
        values = loss.values[loss.steps >= begun]
        return float(np.mean(values)) if len(values) else math.nan

    def start_afresh(self) -> None:
        """Forgets what was seen so far: after a repair it says nothing about the trial any more."""
        if self._watch is None:
            return
        self.before, self._begun = self.steps, 0
        self.close()
        self._run = None
        self.start()

    @property
    def diagnoses(self) -> tuple[Diagnosis, ...]:
        """What is known by now."""
        return tuple(self._watch.diagnoses) if self._watch is not None else ()

    @property
    def history(self) -> History | None:
        """The readings so far, if there is a probe."""
        return self._watch.history if self._watch is not None else None

    @property
    def steps(self) -> int:
        """Optimizer steps so far; 0 without a probe."""
        return self.before + (int(self._watch.steps) if self._watch is not None else 0)

    @property
    def overhead(self) -> float:
        """The share of the training time that watching took."""
        return float(self._watch.overhead) if self._watch is not None else 0.0

    def close(self) -> None:
        """Takes the probe out; a second call does nothing."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
        if self in self._around:
            self._around.remove(self)
        paused, self._paused = self._paused, []
        for outer in paused:
            outer._deaf = False
            if outer._watch is not None:
                outer._watch.resume()


def _apart(some: Iterable[Any], others: Iterable[Any]) -> bool:
    """Whether two groups of models have no weight in common."""
    mine, theirs = (
        {id(weight) for model in models for weight in model.parameters()} for models in (some, others)
    )
    return not mine & theirs
