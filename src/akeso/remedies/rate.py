"""Learning rates: another, a found one, one that is warmed up; and clipping, which bounds steps too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from akeso.detectors import network
from akeso.diagnosis import Diagnosis
from akeso.history import History
from akeso.remedies._base import Remedy
from akeso.remedies.chart import Chart, chart
from akeso.remedies.edit import Edit, Prescription

#: Optimizers whose steps do not grow with the gradient: clipping makes none of them smaller.
_NORMALISING = frozenset({"adam", "adamw", "nadam", "radam", "adamax", "rmsprop", "adagrad"})
#: Times the usual rate beyond which nothing is raised, and nothing that is lowered is left.
_TOP = 10
#: Times below the usual rate at which a rate is more likely too low than too high, whatever else is found.
_FAR = 5
#: Rates seen in the first pass over the data from which on a schedule goes on with every batch.
_MOVES = 4
#: How many times too long the usual gradient is for a clipping that holds a training up.
_TIGHT = 30


def set_rate(to: float) -> Edit:
    """The edit that sets the learning rate."""
    return Edit("set-learning-rate", "", {"to": float(f"{to:.3g}")})


def hold(facts: Chart) -> list[Edit]:
    """The edit that takes a schedule off, where it lowers the rate long before the end or hardly ever raises it."""
    return [Edit("hold-learning-rate")] if facts.rate_falls or facts.rate_creeps else []


def steady(facts: Chart) -> list[Edit]:
    """The edit that keeps a schedule from taking the rate elsewhere than where it is set."""
    return [Edit("hold-learning-rate")] if facts.rate_falls or facts.rate_rises else []


class HoldRate(Remedy):
    """The rate as the optimizer was given it, where a schedule leaves nothing of it for most of the training."""

    name = "hold-learning-rate"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        yield Prescription(hold(chart(history)))


class PaceSchedule(Remedy):
    """A schedule that runs out because it goes on with every batch, advanced once a pass over the data instead.

    That is what schedules are mostly written for, and it leaves everything else as the user chose it.
    """

    name = "pace-schedule"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        if not facts.rate_falls or min(facts.batch_size, facts.dataset_size) <= 0:
            return
        every = -(-facts.dataset_size // facts.batch_size)
        rates = history.series("lr", "0").finite()
        moves = len(set(rates.values[rates.steps < every].tolist()))
        if moves >= _MOVES and facts.planned >= 2 * every:
            yield Prescription([Edit("pace-schedule", "", {"every": every})])


class LowerRate(Remedy):
    """A tenth of the rate, the usual rate where that is lower still; schedules must not raise it again."""

    name = "set-learning-rate"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        rate, usual = facts.peak_rate if facts.rate_rises else facts.lr, facts.usual_rate
        if rate <= 0:
            return
        held = [Edit("hold-learning-rate")] if facts.rate_rises else []
        if rate > 3 * usual:
            yield Prescription([*held, set_rate(usual)])
        if rate > 30 * usual:
            yield Prescription([*held, set_rate(5 * usual)])  # short trainings have no time for less
        yield Prescription([*held, set_rate(min(rate / 10, _TOP * usual))])
        yield Prescription([*held, set_rate(usual / 5 if rate > 30 * usual else rate / 3)])


class LowerSpent(Remedy):
    """Lower rates, where the signal was there when training began and long steps are the likely end of it.

    What reached the last layer at first shows that the network can carry it as it is.
    """

    name = "set-learning-rate"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        start, _ = network.extent(history)
        later = any(found.problem == "vanishing-gradient" and found.step > start for found in diagnoses)
        if later and facts.peak_rate > facts.usual_rate:
            yield from LowerRate().prescribe(history, diagnoses)


class RaiseLow(Remedy):
    """The usual rate, or five times that, where the rate is far below it."""

    name = "set-learning-rate"

    def __init__(self, dose: int) -> None:
        self.dose = dose

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        if facts.lr < facts.usual_rate / _FAR:
            yield from list(_raised(facts))[self.dose : self.dose + 1]


class EitherRate(Remedy):
    """Where nothing shows on which side the rate is wrong: lower ones, then a higher one."""

    name = "set-learning-rate"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        if facts.lr < facts.usual_rate / _FAR:
            return
        yield from LowerRate().prescribe(history, diagnoses)
        yield from list(_raised(facts))[:1]


class RaiseRate(Remedy):
    """The usual rate where the rate is far from it, on either side; five times the rate otherwise."""

    name = "set-learning-rate"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        yield from list(_raised(chart(history)))[:1]


class RaiseFurther(Remedy):
    """Five times the usual rate: short trainings have no time for less."""

    name = "set-learning-rate"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        yield from list(_raised(chart(history)))[1:]


def _raised(facts: Chart) -> Iterable[Prescription]:
    held = hold(facts)
    if 0 < facts.lr < facts.usual_rate / 2:
        yield Prescription([*held, set_rate(facts.usual_rate)])
        yield Prescription([*held, set_rate(facts.usual_rate * 5)])
    elif facts.lr > _TOP * facts.usual_rate:
        yield Prescription([*held, set_rate(facts.usual_rate)])  # no higher one will help
    elif 0 < facts.lr <= _TOP * facts.usual_rate / 2:
        yield Prescription([*held, set_rate(min(facts.lr * 5, _TOP * facts.usual_rate))])


class FindRate(Remedy):
    """A range test over the rates at which the optimizer can work."""

    name = "find-learning-rate"
    share = 0.08

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        steps = max(20, min(100, int(self.share * facts.planned)))
        if facts.planned >= 150:
            low, high = facts.usual_rate / 100, facts.usual_rate * 100
            yield Prescription([Edit("find-learning-rate", "", {"low": low, "high": high, "steps": steps})])


class WarmUp(Remedy):
    """The rate raised to its value over the first twentieth of the training.

    Nothing is gained by it where the rate itself was seen to be far too high to the very end.
    """

    name = "warm-up"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        if any(found.evidence.get("times_usual") for found in diagnoses):
            return
        steps = max(10, chart(history).planned // 20)
        yield Prescription([Edit("warm-up", "", {"steps": steps})])


class UnscaleGradients(Remedy):
    """Gradients clipped as they are, where they were clipped while they were multiplied by the loss scale."""

    name = "unscale-gradients"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        if chart(history).clips_scaled:
            yield Prescription([Edit("unscale-gradients")])


class LoosenClipping(Remedy):
    """Clipping at a norm of one, where it takes nearly all of every gradient and steps are as long as those are."""

    name = "loosen-clipping"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        if facts.clips_scaled:
            return  # the limit is not to blame
        if facts.clip_takes > _TIGHT and facts.clipped < 1.0 and facts.optimizer not in _NORMALISING:
            yield Prescription([Edit("loosen-clipping", "", {"to": 1.0})])


def clip(facts: Chart) -> Edit:
    """The edit that bounds the gradient norm."""
    return Edit("clip-gradient", "", {"kind": "norm", "limit": 1.0})


class ClipGradient(Remedy):
    """Gradient norms bounded by one, alone and with a lower rate."""

    name = "clip-gradient"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        if facts.clipped and facts.clipped <= 1.0:
            return
        if facts.optimizer not in _NORMALISING or facts.lr <= 3 * facts.usual_rate:
            yield Prescription([clip(facts)])
        if facts.lr > 0:
            yield Prescription([clip(facts), set_rate(min(facts.lr / 10, _TOP * facts.usual_rate))])
