"""Learning rates: another, a found one, one that is warmed up; and clipping, which bounds steps too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from akeso.diagnosis import Diagnosis
from akeso.history import History
from akeso.remedies._base import Remedy
from akeso.remedies.chart import Chart, chart
from akeso.remedies.edit import Edit, Prescription

#: Optimizers whose steps do not grow with the gradient: clipping makes none of them smaller.
_NORMALISING = frozenset({"adam", "adamw", "nadam", "radam", "adamax", "rmsprop", "adagrad"})
#: Times the usual rate beyond which nothing is raised.
_TOP = 10
#: Momentum from which on a step is felt for more than twenty others.
_LONG = 0.95


def set_rate(to: float) -> Edit:
    """The edit that sets the learning rate."""
    return Edit("set-learning-rate", "", {"to": float(f"{to:.3g}")})


def hold(facts: Chart) -> list[Edit]:
    """The edit that keeps schedules from lowering the rate, where one does so long before the end."""
    return [Edit("hold-learning-rate")] if facts.rate_falls else []


class HoldRate(Remedy):
    """The rate left where it starts, where a schedule brings it down to nothing long before the end."""

    name = "hold-learning-rate"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        yield Prescription(hold(chart(history)))


class LowerRate(Remedy):
    """A tenth of the rate, or the usual rate where that is lower still; before that an ordinary momentum."""

    name = "set-learning-rate"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        if facts.lr <= 0:
            return
        if facts.optimizer == "sgd" and facts.momentum > _LONG:
            # Steps go on for hundreds of others: no rate makes up for that.
            rate = float(f"{min(facts.lr, facts.usual_rate):.3g}")
            yield Prescription([Edit("substitute-optimizer", "", {"to": "SGD", "lr": rate, "momentum": 0.9})])
        if facts.lr > 3 * facts.usual_rate:
            yield Prescription([set_rate(facts.usual_rate)])
        if facts.lr > 30 * facts.usual_rate:
            yield Prescription([set_rate(5 * facts.usual_rate)])  # short trainings have no time for less
        yield Prescription([set_rate(facts.lr / 10)])
        if facts.lr > 30 * facts.usual_rate:
            yield Prescription([set_rate(facts.usual_rate / 5)])
        else:
            yield Prescription([set_rate(facts.lr / 3)])


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
    """The rate raised to its value over the first twentieth of the training."""

    name = "warm-up"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        steps = max(10, chart(history).planned // 20)
        yield Prescription([Edit("warm-up", "", {"steps": steps})])


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
            yield Prescription([clip(facts), set_rate(facts.lr / 10)])
