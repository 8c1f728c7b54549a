"""The forecast of a trial's curve, set right by what the forecasts of trials like it missed.

What a curve does not say, the hyperparameters and training losses of a trial may. After each epoch the forecasts of
the finished trials missed by so many errors, and so did those of trials that were given up later, measured by the end
that was foreseen for them then. A Gaussian process (:mod:`akeso.search.kin`) tells from these what the forecast of a
new trial will miss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from akeso.history import Floats
from akeso.search.kin import Kin
from akeso.search.regression import Regression
from akeso.search.traits import Hyperparameters, Losses, Traits

#: Fewer trials than this have no kin.
_FEWEST = 6
#: What a trial must have gained since its first report to have moved at all, in units of the study's spread.
MOVED = 0.1
#: A forecast that missed by more errors than this is no measure for others.
_MISSED = 4.0


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A trial that was given up: its curve so far and the end foreseen for it then, on the scale of the study.

    The curve says nothing ``before`` so many reports.
    """

    curve: Floats
    end: float
    traits: Traits
    before: int = 0


@dataclass(frozen=True, slots=True)
class _After:
    """What trials say after one epoch, how others are made comparable with them, and which finished ones are there.

    ``witnessed`` says of each of them how long it was seen what becomes of it: to its end where it ran to it, so many
    epochs where it stood still until it was given up, otherwise none.
    """

    kin: Kin
    losses: Losses | None
    finished: np.ndarray
    witnessed: Floats


class Kinship:
    """Forecasts by curves and by kin. ``traits`` belong to the rows that ``by_curves`` learnt from."""

    def __init__(self, by_curves: Regression, traits: Sequence[Traits], given_up: Sequence[GivenUp]) -> None:
        self._by_curves = by_curves
        self._given_up = given_up
        self._traits = [*traits, *(trial.traits for trial in given_up)]
        self._finished = len(traits)
        configurations = [some.params for some in self._traits]
        self._params = Hyperparameters(configurations)
        self._points = self._params.points(configurations)
        self._with_losses = 2 * sum(bool(some.losses) for some in self._traits) > len(self._traits)
        self._after: dict[int, _After | None] = {}

    def __call__(self, prefixes: Floats, traits: Sequence[Traits]) -> tuple[Floats, Floats]:
        """The forecast gain still to come of each trial that has come so far, and its error."""
        gain, error = self._by_curves(prefixes)
        t = prefixes.shape[1] - 1
        there = np.array([self._comparable(some, t) for some in traits])
        after = self._learnt(t) if there.any() else None
        if after is not None:
            some = [one for one, known in zip(traits, there, strict=True) if known]
            missed, factor = after.kin(self._blocks(prefixes[there], some, after.losses))
            gain[there] += missed * error[there]
            error[there] *= factor
        return gain, error

    def left_out(self, t: int) -> tuple[Floats, Floats]:
        """The gain forecast for each finished trial from the others after epoch ``t``, and its error."""
        gain, error = self._by_curves.left_out(t)
        after = self._learnt(t)
        if after is None:
            return gain, error
        missed, factor = np.zeros(len(gain)), np.ones(len(gain))
        count = np.count_nonzero(after.finished)
        missed[after.finished] = after.kin.left_out[:count]
        factor[after.finished] = after.kin.left_out_error[:count]
        return gain + missed * error, factor * error

    def company(self, prefix: Floats, traits: Traits, age: float) -> int:
        """How many trials were like this one, in its training losses too, and say what becomes of it.

        They ran to their end, or stood still for at least ``age`` epochs before they were given up. 0 where unknown.
        """
        t = prefix.shape[1] - 1
        after = self._learnt(t) if self._with_losses and self._comparable(traits, t) else None
        if after is None:
            return 0
        alike = after.kin.company(self._blocks(prefix, [traits], after.losses))[0]
        return int(np.count_nonzero(alike & (after.witnessed >= age)))

    def _comparable(self, traits: Traits, t: int) -> bool:
        """Whether as much is known of a trial after epoch ``t`` as of most others."""
        if self._params and not traits.params:
            return False
        return len(traits.losses) > t if self._with_losses else bool(self._params)

    def _blocks(self, prefixes: Floats, traits: Sequence[Traits], losses: Losses | None) -> list[Floats]:
        points = self._params.points([some.params for some in traits])
        return [self._by_curves.standing(prefixes), points, _fell(losses, traits, prefixes.shape[1])]

    def _learnt(self, t: int) -> _After | None:
        """What trials missed their forecasts by after epoch ``t``, as far as their curves are concerned."""
        if t not in self._after:
            self._after[t] = self._learn(t)
        return self._after[t]

    def _learn(self, t: int) -> _After | None:
        there = np.array([self._comparable(traits, t) for traits in self._traits], bool)
        finished, later = there[: self._finished], there[self._finished :]
        finished &= self._by_curves.there(t)
        later &= np.array([len(one.curve) > t >= one.before for one in self._given_up], bool)
        if np.count_nonzero(there) < _FEWEST:
            return None
        curves = self._by_curves.curves
        gain, error = self._by_curves.left_out(t)
        missed = ((curves[:, t] - curves[:, -1] - gain) / error)[finished]
        prefixes, believed = curves[finished, : t + 1], self._by_curves.ran[finished]
        witnessed = np.where(believed, np.inf, 0.0)
        others = [trial for trial, known in zip(self._given_up, later, strict=True) if known]
        if others:
            ahead = np.array([trial.curve[: t + 1] for trial in others])
            gain, error = self._by_curves(ahead)
            ends = np.array([trial.end for trial in others])
            missed = np.append(missed, (ahead[:, -1] - ends - gain) / error)
            prefixes = np.concatenate([prefixes, ahead])
            believed = np.append(believed, np.zeros(len(others), bool))
            still = [0 if has_moved(trial.curve) else len(trial.curve) for trial in others]
            witnessed = np.append(witnessed, still)
        traits = [self._traits[i] for i in np.flatnonzero(there)]
        losses = Losses(np.array([some.losses[: t + 1] for some in traits])) if self._with_losses else None
        blocks = [self._by_curves.standing(prefixes), self._points[there], _fell(losses, traits, t + 1)]
        kin = Kin(blocks, np.clip(missed, -_MISSED, _MISSED), believed)
        return _After(kin, losses, finished, witnessed)


def has_moved(curve: Floats) -> bool:
    """Whether a trial, on the scale of its study, has come nearer to the best by more than a tenth of the spread."""
    return bool(curve[0] - curve[-1] > MOVED)


def _fell(losses: Losses | None, traits: Sequence[Traits], reports: int) -> Floats:
    """Where the losses of trials stand after so many reports and how they fell; no columns where they are unknown."""
    if losses is None:
        return np.zeros((len(traits), 0))
    return losses.points(np.array([some.losses[:reports] for some in traits]))
