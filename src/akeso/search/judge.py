"""The decision about one trial: a pure function of its findings, its curve and what the study knows."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from akeso.diagnosis import Diagnosis
from akeso.history import Floats
from akeso.search.curves import Knowledge, jitter, overtaken, since, stalled
from akeso.search.forecast import Forecast, Outlook
from akeso.search.profiles import SearchProfile
from akeso.search.traits import NOTHING, Traits
from akeso.search.verdict import CONTINUE, Action, Verdict

#: However small or large a study is, its best trials are not fewer and not more than these.
_FEW, _TEN = 3, 10
#: A trial that stands still is like others when so many of them were like it: one alone may be chance.
_COMPANY = 2
#: One of so many trials that stand still is let go on to its end.
_ONE_IN = 30


class Judge:
    """Judges the trials of one study under one profile.

    A judge keeps nothing between calls but the forecast, which is made anew when enough trials have ended to
    change it: two judges that know the same trials say the same.
    """

    def __init__(self, profile: SearchProfile, knowledge: Knowledge, *, maximize: bool) -> None:
        self.profile = profile
        self.knowledge = knowledge
        self.maximize = maximize
        enough = profile.false_stops is not None and len(knowledge) >= profile.warm_up
        self._rate = profile.false_stops or 0.02
        self.forecast = Forecast(knowledge, rate=self._rate, top=profile.top) if enough else None
        self._slept: int | None = None

    @property
    def guarding(self) -> bool:
        """Whether a curve could be stopped at all with what is known."""
        return self.forecast is not None and self.forecast.least > 0

    def protects(self, cost: float) -> bool:
        """Whether a trial that already stands at ``cost`` is among the best of the study."""
        if self.forecast is not None:
            return cost <= self.forecast.goal
        return len(self.knowledge) >= self.profile.warm_up and cost <= self.knowledge.edge(
            self.profile.top, self._rate / 2
        )

    def of_findings(
        self,
        findings: Iterable[Diagnosis],
        costs: Floats,
        *,
        epoch: int,
        within_epoch: bool = False,
        safe: bool | None = None,
    ) -> Verdict:
        """What follows from diagnosed problems; a trial among the best keeps its value whatever is found.

        ``safe`` says whether it is among them, where one objective does not tell.
        """
        wanted = self.profile.at_steps if within_epoch else self.profile.stops | self.profile.finishes
        for finding in findings:
            if finding.problem not in wanted or finding.confidence < self.profile.confidence:
                continue
            if finding.severity == "info" and finding.problem not in self.profile.finishes:
                continue
            if finding.problem in self.profile.finishes:
                return Verdict.of_diagnosis(finding, "finish", epoch)
            if safe is None:
                finite = costs[np.isfinite(costs)]
                safe = len(finite) > 0 and self.protects(float(finite[-1]))
            if safe and finding.problem != "non-finite":
                continue
            return Verdict.of_diagnosis(finding, "finish" if safe else "stop", epoch)
        return CONTINUE

    def of_curve(self, costs: Floats, traits: Traits = NOTHING) -> Verdict:
        """What follows from the values reported so far, and from what else is known of the trial."""
        epoch = len(costs) - 1
        if epoch < 0:
            return CONTINUE
        if not math.isfinite(costs[-1]):
            return self._not_finite(costs, epoch)
        silent = self.knowledge.silent(traits)
        if epoch >= self.knowledge.epochs - 1 or epoch < silent:
            return CONTINUE
        costs = since(costs, silent)
        if self.forecast is not None:
            outlook = self.forecast.outlook(costs, traits)
            return self._of_forecast(self.forecast, outlook, costs, traits, epoch) or self._of_gain(
                self.forecast, outlook, costs, traits, epoch
            )
        return self._of_stalling(costs, epoch)

    def _not_finite(self, costs: Floats, epoch: int) -> Verdict:
        finite = costs[np.isfinite(costs)]
        action: Action = "finish" if len(finite) and self.protects(float(finite[-1])) else "stop"
        sentence = (
            f"The value reported after epoch {epoch + 1} is not finite; nothing can be compared with it."
        )
        return Verdict(action, "non-finite-value", "non-finite", epoch=epoch, sentence=sentence)

    def _of_forecast(
        self, forecast: Forecast, outlook: Outlook, costs: Floats, traits: Traits, epoch: int
    ) -> Verdict:
        if costs[-1] <= forecast.goal or outlook.chance >= forecast.least:
            return CONTINUE
        if self.may_wake(forecast, costs, traits) or forecast.wakes(costs):
            return CONTINUE
        if len(costs) > 1 and costs[-1] > costs[-2]:
            # One bad report may be a bad report and no more: it has to look hopeless from the one before as well.
            outlook = forecast.outlook(_smoothed(costs), traits)
            if costs[-2] <= forecast.goal or outlook.chance >= forecast.least:
                return CONTINUE
        shown = {
            "value": self._value(float(costs[-1])),
            "forecast": self._value(outlook.likely),
            "goal": self._value(forecast.goal),
            "chance": float(f"{outlook.chance:.3g}"),
            "least_chance": float(f"{forecast.least:.3g}"),
            "finished_trials": forecast.trials,
        }
        chance = f"a chance of {outlook.chance:.1%}" if outlook.chance >= 0.0005 else "next to no chance"
        edge = f"from {shown['goal']:.4g} on" if self.maximize else f"up to {shown['goal']:.4g}"
        text = (
            f"After {epoch + 1} of {self.knowledge.epochs} epochs the trial stands at {shown['value']:.4g}; by the "
            f"finished trials of this study it is expected to end near {shown['forecast']:.4g}, with {chance} to "
            f"belong to its best quarter ({edge})."
        )
        return Verdict("stop", "forecast", "hopeless-curve", epoch=epoch, sentence=text, evidence=shown)

    def may_wake(self, forecast: Forecast, costs: Floats, traits: Traits) -> bool:
        """Whether the trial may be a late learner: it has not moved since its first report, and is young.

        Where it stands says nothing yet about where it will end, unless some were like it in their training losses
        and hyperparameters too, and ran to their end or stood still for as long as any trial is left alone; and those
        of the study that stood there and woke up are seldom among its finished trials. So that the study finds out,
        one in a few goes on now and then.
        """
        if not self.profile.late or forecast.moved(costs):
            return False
        grown = self.profile.late * self.knowledge.epochs
        if len(costs) < grown and forecast.company(costs, traits, grown) < _COMPANY:
            return True
        if self._slept is None:
            self._slept = sum(not forecast.moved(np.array(other.costs)) for other in self.knowledge.given_up)
        return self._slept >= _ONE_IN * forecast.sleepers(len(costs))

    def _of_gain(
        self, forecast: Forecast, outlook: Outlook, costs: Floats, traits: Traits, epoch: int
    ) -> Verdict:
        """No more gain, by the finished trials and by its own pace: nothing is to be expected but a sliver.

        What a sliver is worth depends on how close together trials end. One that may come among the best of the
        study goes on as long as it has gained anything of late or may overtake others; one that may come over the
        edge of the best quarter, as long as half a sliver is left or it may overtake others.
        """
        if self.profile.sliver is None or epoch < 2 or outlook.gain >= self.profile.sliver:
            return CONTINUE
        if self.may_wake(forecast, costs, traits):
            return CONTINUE
        cost = float(costs[-1])
        overtakes = overtaken(forecast.ends, cost, outlook.optimistic) > self._rate / 4
        contenders = math.ceil(self.profile.contenders * self.knowledge.ended)
        if outlook.optimistic <= self.knowledge.best(min(max(contenders, _FEW), _TEN)):
            if overtakes or outlook.moved > 0:
                return CONTINUE
        elif self._undecided(forecast, outlook, cost) and (
            overtakes or outlook.gain >= self.profile.sliver / 2
        ):
            return CONTINUE
        text = (
            f"After {epoch + 1} of {self.knowledge.epochs} epochs hardly any more gain is to be expected, measured by "
            "how far the finished trials of this study lie apart, and by its own pace; the trial ends early and keeps "
            "its value."
        )
        shown = {
            "value": self._value(cost),
            "forecast": self._value(min(outlook.likely, cost)),
            "gain_at_most": round(outlook.gain, 4),
        }
        return Verdict("finish", "no-more-gain", "no-more-gain", epoch=epoch, sentence=text, evidence=shown)

    def _undecided(self, forecast: Forecast, outlook: Outlook, cost: float) -> bool:
        """Whether the rest of the trial may decide if it belongs to the best quarter."""
        return outlook.optimistic <= forecast.goal and cost > self.knowledge.core(
            self.profile.top, self._rate / 4, forecast.ends
        )

    def _of_stalling(self, costs: Floats, epoch: int) -> Verdict:
        """No more gain: the trial had risen well above its own noise and then stood still for long.

        A curve that has not moved yet is none of these: it may belong to a late learner.
        """
        if self.profile.patience is None:
            return CONTINUE
        epochs = self.knowledge.epochs
        window = max(5, math.ceil(self.profile.patience * epochs))
        if epoch + 1 < epochs / 2 or not stalled(costs, window, 0.0):
            return CONTINUE
        gained, noise = float(costs[0] - np.min(costs)), jitter(costs)
        if gained <= 4 * noise or gained <= 0:
            return CONTINUE
        text = (
            f"No gain over the last {window} of {epoch + 1} epochs; the trial ends early and keeps its value."
        )
        return Verdict("finish", "no-more-gain", "no-more-gain", epoch=epoch, sentence=text)

    def _value(self, cost: float) -> float:
        return -cost if self.maximize else cost


def _smoothed(costs: Floats) -> Floats:
    """The running costs of a trial whose last report is worse, with what half of its pace would have given there."""
    pace = max(costs[-3] - costs[-2], 0.0) if len(costs) > 2 else 0.0
    return np.append(costs[:-1], costs[-2] - pace / 2)
