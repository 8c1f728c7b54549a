"""Units that are dead or stuck on the flat parts of their activation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors._base import Detector
from akeso.detectors.standing import standing
from akeso.diagnosis import Symptom
from akeso.history import History

#: Looks in a row that must say the same before it counts.
_LOOKS = 3


def _levels(
    history: History, signal: str, sites: list[str], window: network.Window
) -> list[tuple[str, float]]:
    found = [(site, network.typical(history, signal, site, window)) for site in sites]
    return [(site, value) for site, value in found if math.isfinite(value)]


@dataclass(frozen=True)
class DyingRelu(Detector):
    """Most units of a layer that can die are zero for every sample, and the training suffers.

    Where no loss tells whether it does, as in games and of rewards, a layer that was alive and has died is named.
    """

    name: ClassVar[str] = "dying-relu"
    min_steps: int = 20
    blocked: float = 0.95
    dead: float = 0.7
    silent: float = 0.98
    remaining: float = 0.8
    alive: float = 0.5

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        harmed = stand.suffers(self.remaining) or network.stopped(history)
        if stand.steps < self.min_steps or not (harmed or stand.adversarial):
            return
        window = network.recent(history, 0.2, 10)
        sites = network.sites(history, "act_dead", "relu", "threshold")
        levels = [
            (site, 1.0 if self._silent(history, site) else value)
            for site, value in _levels(history, "act_dead", sites, window)
        ]
        if not levels:
            return
        site, worst = max(levels, key=lambda pair: pair[1])
        overall = float(np.mean([value for _, value in levels]))
        if not harmed and (worst < self.blocked or not self._was_alive(history, site)):
            return
        if worst < self.blocked and overall < self.dead:
            yield from self._hardly_alive(history, sites, window)
            return
        signal = "act_zero" if self._silent(history, site) else "act_dead"
        series = history.series(signal, site).finite()
        step = curves.first_step_where(
            series, np.asarray(series.values >= min(worst, self.blocked) - 1e-9, float)
        )
        yield Symptom(
            self.name,
            "error" if harmed else "warning",
            min(0.97, 0.6 + 0.35 * max(worst, overall) ** 4),
            step,
            site,
            {
                "dead_units_worst": round(worst, 4),
                "dead_units_overall": round(overall, 4),
                **stand.evidence(),
            },
            f"{worst:.0%} of the units of {network.called(site)} are zero for every sample ({overall:.0%} over all "
            "such layers); they get no gradient and cannot come back.",
        )

    def _hardly_alive(self, history: History, sites: list[str], window: network.Window) -> Iterator[Symptom]:
        """Units that each wake up for a sample now and then, in a layer that is silent nearly everywhere."""
        zeros = _levels(history, "act_zero", sites, window)
        site, worst = max(zeros, key=lambda pair: pair[1], default=("", 0.0))
        if worst < self.silent:
            return
        series = history.series("act_zero", site).finite()
        yield Symptom(
            self.name,
            "error",
            min(0.9, 0.7 + 0.1 * math.log10((1.0 - self.silent) / max(1.0 - worst, 1e-3))),
            curves.first_step_where(series, np.asarray(series.values >= self.silent, float)),
            site,
            {"zero_outputs_worst": round(worst, 4), **standing(history).evidence()},
            f"{worst:.1%} of the outputs of {network.called(site)} are zero: hardly any sample gets through, and "
            "hardly any gradient comes back.",
        )

    def _was_alive(self, history: History, site: str) -> bool:
        """Whether few units were dead in the first looks."""
        first = history.series("act_dead", site).finite().values[:_LOOKS]
        return len(first) == _LOOKS and float(np.max(first)) <= self.alive

    def _silent(self, history: History, site: str) -> bool:
        """Whether the last looks found nothing but zeros: units that were alive in earlier ones are dead now."""
        seen = history.series("act_zero", site).finite().values[-2:]
        return len(seen) == 2 and bool((seen >= 1.0 - 1e-9).all())


@dataclass(frozen=True)
class SaturatedActivation(Detector):
    """Most outputs of bounded activations sit on the flat parts, and the training suffers."""

    name: ClassVar[str] = "saturated-activation"
    min_steps: int = 20
    saturated: float = 0.8
    remaining: float = 0.7

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        if stand.steps < self.min_steps or not stand.suffers(self.remaining):
            return
        window = network.recent(history, 0.3, 10)
        levels = _levels(
            history,
            "act_saturated",
            network.sites(history, "act_saturated", "sigmoid", "tanh", "hard", "soft"),
            window,
        )
        if not levels:
            return
        site, worst = max(levels, key=lambda pair: pair[1])
        if worst < self.saturated:
            return
        series = history.series("act_saturated", site).finite()
        step = curves.first_step_where(series, np.asarray(series.values >= 0.9 * self.saturated, float))
        yield Symptom(
            self.name,
            "error",
            min(0.95, 0.55 + 0.4 * worst),
            step,
            site,
            {"saturated_worst": round(worst, 4), **stand.evidence()},
            f"{worst:.0%} of the outputs of {network.called(site)} sit on the flat parts of the activation, where "
            "nothing is learned.",
        )
