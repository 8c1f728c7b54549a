"""How the training stands: the question of harm, answered once for all detectors.

A mechanism that looks strange is a problem only where the training suffers. What a *constant prediction*
would give is the yardstick: it has the scale of the loss and of the task, so that "half of the constant's
loss is left" means the same for a cross-entropy over 43 classes, a squared error in squared dollars and a
batch of 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from akeso.detectors import curves
from akeso.detectors.network import recent as recent_window
from akeso.history import Floats, History, Series

#: A loss this many times a constant prediction's is harm, whatever few sampled batches say of the accuracy.
_BEYOND: Final = 1e3
#: Looks in a row with the same answer to all samples, and differences that are rounding.
_LOOKS: Final = 3
_SAME: Final = 1e-6
#: Share of a constant prediction's loss beyond which what the targets leave is not believed.
_SUREST: Final = 0.9

#: How far the loss that is trained on may drift from what the loss function gives before something else is in it.
ADDED: Final = 1.02
#: Losses that are not negative whatever they are given.
_NEVER_NEGATIVE: Final = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
#: What is negative by rounding, as a share of the size of a loss.
_ROUNDING: Final = 1e-6
#: Readings of what a loss is in units of its function, and how much of the way between two of them is taken back (in
#: logarithms, on average) where more than a penalty was added to it.
_MOVES: Final = 6
_BACK_AND_FORTH: Final = 0.15
#: Readings of the mean of the targets, and how well it goes with the steps, by ranks or by the way, where targets move.
_DRIFT_SEEN: Final = 8
_DRIFT: Final = 0.8
#: Losses, and in how many of their steps one lies on the other side of zero, where they are differences.
_CROSSINGS_SEEN: Final = 20
_CROSSINGS: Final = 0.1
#: Stretches of the run that are told apart for it; half of them must have been looked at.
_STRETCHES: Final = 6


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the loss started, where it is, and what a constant prediction would give; ``nan``: not known."""

    steps: int
    planned: int | None
    finished: bool
    first: float
    last: float
    best: float
    noise: float
    overall: curves.Trend
    recent: curves.Trend
    baseline: float
    accuracy: float
    chance: float
    remaining_loss: float
    remaining_error: float
    plateau: float
    level: float
    broken: bool
    adversarial: bool
    uniform: bool = False
    """Whether every sample gets the same answer: such a loss comes down to a constant prediction's at most."""
    even: float = math.nan
    """Where no constant prediction is known: what answers give that hold all classes for equally likely."""

    @property
    def share(self) -> float:
        """The share of the run that was seen: 1 when finished, ``nan`` when its length is not known."""
        if self.planned:
            return min(1.0, self.steps / self.planned)
        return 1.0 if self.finished else math.nan

    @property
    def length(self) -> int:
        """The steps the whole run will have, as far as known."""
        return max(self.planned or 0, self.steps)

    @property
    def remaining(self) -> float:
        """The share of a constant prediction's loss (or error, if that is less) that is still left.

        Where the loss is orders of magnitude beyond a constant prediction's, it alone counts.
        """
        if self.remaining_loss >= _BEYOND:
            return self.remaining_loss
        known = [value for value in (self.remaining_loss, self.remaining_error) if math.isfinite(value)]
        return min(known) if known else math.nan

    @property
    def improved(self) -> bool:
        """Whether the loss is now clearly lower than where it started, against its own noise."""
        if self.broken or not math.isfinite(self.last) or not math.isfinite(self.first):
            return False
        drop = self.first - self.last
        return drop > 3.0 * self.noise and (self.overall.falls or drop > 0.3 * abs(self.first)) and drop > 0

    def learned(self, remaining: float) -> bool:
        """Whether the loss came down clearly, to less than ``remaining`` of a constant prediction's."""
        left = self.remaining_loss if math.isfinite(self.remaining_loss) else self.remaining
        return self.improved and not self.diverged and not left >= remaining

    @property
    def ahead(self) -> float:
        """How many times longer than so far the run will go on; a guess where its length is not known."""
        if self.finished:
            return 0.0
        return max(0.0, (self.planned or 5 * self.steps) / max(1, self.steps) - 1.0)

    def promising(self, remaining: float) -> bool:
        """Whether the loss, falling on as it lately did, will be well below ``remaining`` before the run ends."""
        if not self.recent.falls or self.broken or not self.last > 0 or not math.isfinite(self.remaining):
            return False
        if self.uniform:
            return False
        halves = -self.recent.change / self.last  # relative fall over the last half of what was seen
        return self.remaining * math.exp(-halves * 2.0 * self.ahead) < 0.5 * remaining

    def coming_down(self, share: float) -> bool:
        """Whether the loss falls in a run of which less than ``share`` is over: too early to call it harmed."""
        return self.overall.falls and not self.diverged and self.over < share

    @property
    def over(self) -> float:
        """The share of the run that is over; a guess where its length is not known."""
        return self.share if math.isfinite(self.share) else self.steps / (self.steps + 200.0)

    @property
    def diverged(self) -> bool:
        """Whether the loss is clearly above both its start and a constant prediction."""
        if self.broken:
            return True
        if self.adversarial or not math.isfinite(self.last) or not math.isfinite(self.first):
            return False
        reference = max(self.first, self.reference) if math.isfinite(self.reference) else self.first
        return self.last > reference + 0.5 * abs(reference) + 4.0 * self.noise

    @property
    def reference(self) -> float:
        """The loss of having learnt nothing: that of a constant prediction or, without one, of even answers.

        A loss may start far below it, as one that compares with a queue that holds but noise at first.
        """
        return self.baseline if math.isfinite(self.baseline) else self.even

    @property
    def beats_constant(self) -> bool:
        """Whether the loss is below that of a constant prediction, by little perhaps but beyond its noise."""
        ahead = self.baseline - self.level
        return ahead > 0.015 * self.baseline and ahead > 5.0 * self.noise / math.sqrt(
            max(1.0, self.steps / 2.0)
        )

    def lost_time(self, plateau: float, remaining: float) -> bool:
        """Whether much of the run went by at a constant prediction's loss, and much of that is left."""
        return self.plateau >= plateau and self.remaining >= remaining

    def suffers(self, remaining: float) -> bool:
        """Whether at least ``remaining`` of a constant prediction's loss is left, or the run diverged.

        Where no constant prediction is known, a run suffers when its loss neither came down at all nor does so.
        """
        if self.diverged:
            return True
        if math.isfinite(self.remaining):
            return self.remaining >= remaining and not self.promising(remaining)
        falls = self.overall.falls and self.recent.falls
        return not self.adversarial and not self.improved and not falls

    def evidence(self) -> dict[str, float]:
        """The figures a reader needs to follow the judgement."""
        figures = {
            "loss_first": self.first,
            "loss_last": self.last,
            "constant_prediction_loss": self.baseline,
            "accuracy": self.accuracy,
            "chance_accuracy": self.chance,
        }
        return {name: float(f"{value:.4g}") for name, value in figures.items() if math.isfinite(value)}


def standing(history: History) -> Standing:
    """How the training stands at the end of the history."""
    loss = history.series("loss")
    finite = loss.finite()
    values = finite.values
    ended_badly = len(loss) > 0 and not bool(np.isfinite(loss.values[-3:]).any())
    baseline = _baseline(history)
    adversarial = losses_of_their_own(history)
    # Summed over an episode, a loss is the larger the longer that lasts: its level is no measure either.
    adversarial = adversarial or (not math.isfinite(baseline) and summed_over_episodes(history))
    adversarial = adversarial or bool(no_measure(history))
    last = curves.level(curves.tail(values, 0.1, 8))
    means = curves.block_means(values, 20)
    accuracy, chance = _accuracy(history)
    usable = math.isfinite(baseline) and math.isfinite(last) and not adversarial
    enough = math.isfinite(accuracy) and math.isfinite(chance) and chance < 0.999 and not adversarial
    return Standing(
        steps=len(loss),
        planned=history.planned_steps,
        finished=history.finished,
        first=float(values[0]) if len(values) else math.nan,
        last=last,
        best=float(means.min()) if len(means) else math.nan,
        noise=curves.noise(curves.tail(values, 0.5, 10)),
        overall=curves.trend(values),
        recent=curves.trend(curves.tail(values, 0.5, 10)),
        baseline=baseline,
        accuracy=accuracy,
        chance=chance,
        remaining_loss=_least(history, _left(history, last, baseline), baseline) if usable else math.nan,
        remaining_error=(1.0 - _sure_accuracy(history, accuracy)) / (1.0 - chance) if enough else math.nan,
        plateau=float(np.mean(means >= 0.95 * baseline))
        if math.isfinite(baseline) and len(means)
        else math.nan,
        level=float(np.mean(curves.tail(values, 0.5, 10))) if len(values) else math.nan,
        broken=ended_badly,
        adversarial=adversarial,
        uniform=_uniform(history),
        even=_even(history) if not math.isfinite(baseline) else math.nan,
    )


def loss_floor(history: History, baseline: float) -> float:
    """What targets that are no plain yes or no leave of a loss in any case."""
    shares = history.series("floor_share").finite().values
    return min(curves.median(curves.tail(shares, 0.5, 3)), _SUREST) * baseline if len(shares) else 0.0


def _left(history: History, last: float, baseline: float) -> float:
    """The share of a constant prediction's loss that is left, of what the targets do not leave in any case."""
    floor = loss_floor(history, baseline)
    return max(0.0, last - floor) / (baseline - floor)


def _least(history: History, left: float, baseline: float) -> float:
    """The same by validation, where the loss holds several functions and validation only the one that is known."""
    series = history.series("val_loss").finite().values
    if not several_losses(history) or len(series) < 2 or not baseline > 0:
        return left
    return min(left, float(np.median(series[-2:])) / baseline)


def losses_of_their_own(history: History) -> bool:
    """Whether there are several optimizers, each with a loss of its own perhaps, as of two networks in a game.

    Those that all step after one backward pass, every time, share the loss: sparse weights and dense ones, say.
    """
    optimizers, scopes = list(history.facts.get("optimizers") or ()), history.scopes("lr")
    if max(len(optimizers), len(scopes)) <= 1:
        return False
    if len(scopes) != len(optimizers) or history.scopes("loss") != [""] or "micro_batches" in history.facts:
        return True
    # What is whose turn is not known yet in the first two steps.
    looks = [np.unique(steps[steps > 1]) for steps in (history.series("lr", one).steps for one in scopes)]
    return not all(len(one) and np.array_equal(one, looks[0]) for one in looks)


def several_losses(history: History) -> bool:
    """Whether a loss is made of several functions, so that no scale is known between it and any of them."""
    most = history.facts.get("loss_terms_least")
    return isinstance(most, int) and most > 1


def _uniform(history: History) -> bool:
    between = history.series("output_sample_std").finite().values[-_LOOKS:]
    size = max(abs(curves.median(history.series(f"output_{end}").values[-_LOOKS:])) for end in ("min", "max"))
    return len(between) == _LOOKS and bool((between <= _SAME * max(size, _SAME)).all())


def summed_over_episodes(history: History) -> bool:
    """Whether a loss has more than twice as many terms in one step as in another: moments of an episode, say."""
    most, least = history.facts.get("loss_terms"), history.facts.get("loss_terms_least")
    return isinstance(most, int) and isinstance(least, int) and most > 2 * least


def no_measure(history: History) -> str:
    """Why neither the level of the loss nor a constant prediction's is a measure of anything; empty where they are."""
    if history.facts.get("terms_between_parts"):
        return "a part of the loss draws parts of the model to each other"
    if _more_than_its_function(history):
        return "the loss holds more than the function that was recognised"
    if _moving_targets(history):
        return "the targets move, as those that a model makes for itself"
    if _around_zero(history):
        return "the loss goes to and fro across zero, as a difference does"
    return ""


def _around_zero(history: History) -> bool:
    """Whether a loss with no constant prediction is above zero in one step and below in another, again and again.

    It is a difference then, of two energies or of what was gained and expected, and stands near zero however well what
    it is made of does. A likelihood crosses zero as well, but once, on its way down.
    """
    values = history.series("loss").finite().values
    if len(values) < _CROSSINGS_SEEN or history.series("baseline_loss").finite():
        return False
    return float(np.mean(np.diff(values > 0) != 0)) >= _CROSSINGS


def _more_than_its_function(history: History) -> bool:
    """Whether a loss holds a term of either sign beside the function that was recognised, as a policy's gain.

    The function itself is never negative. What is added to it, and is no penalty, makes the loss so at some time, or
    moves it up and down against its function.
    """
    facts = history.facts
    classes = facts.get("loss") == "cross_entropy" and facts.get("target_kind") == "indices"
    if facts.get("loss") not in _NEVER_NEGATIVE and not classes:
        return False
    ratios = history.series("loss_over_call").finite().values
    several = isinstance(facts.get("loss_terms"), int) and facts["loss_terms"] > 1
    if len(ratios) >= 3 and float(ratios.max() - ratios.min()) <= 0.02 * float(np.abs(ratios).max()):
        return False  # a factor, and be it negative
    if not several and len(ratios) < 3:
        return False
    losses = history.series("loss").finite().values
    if len(losses) and float(losses.min()) < -_ROUNDING * float(np.median(np.abs(losses))):
        return True
    positive = ratios[ratios > 0]
    moves = np.diff(np.log(positive)) if len(positive) >= _MOVES else np.zeros(1)
    back_and_forth = min(float(moves[moves > 0].sum()), -float(moves[moves < 0].sum())) / len(moves)
    return back_and_forth >= _BACK_AND_FORTH


def _moving_targets(history: History) -> bool:
    """Whether the targets go up or down all the time: a model makes them for itself, as values of states it visits.

    A constant prediction of what was seen so far is then no measure, and a loss may rise as there is more to learn.
    """
    if history.facts.get("loss") not in _NEVER_NEGATIVE:
        return False
    means, spread = history.series("target_mean").finite(), history.series("target_std").finite().values
    if len(means) < _DRIFT_SEEN or not len(spread):
        return False
    end = int(means.steps[-1])
    early, late = means.values[means.steps <= end / 3], means.values[means.steps >= 2 * end / 3]
    if not len(early) or not len(late):
        return False
    # What a model makes for itself may stand still until it is first brought up to date.
    together = max(_one_way(means.values), _one_way(means.values[len(means) // 2 :]), _straightness(means))
    gone = abs(float(np.mean(late)) - float(np.mean(early)))
    return bool(together >= _DRIFT and gone > curves.median(spread))


def _one_way(values: Floats) -> float:
    """How far values go one way, up or down: 1 where each goes on from the one before it; 0 for a few."""
    if len(values) < _DRIFT_SEEN - 2:
        return 0.0
    return abs(float(np.corrcoef(np.arange(len(values)), values.argsort().argsort())[0, 1]))


def _straightness(series: Series) -> float:
    """How much of the way that values go leads from the first part of the steps to the last.

    Readings lie close together at the start of a run, where nothing has moved yet: what they do there is an accident.
    """
    part = _STRETCHES * series.steps // (int(series.steps[-1]) + 1)
    levels = np.array([float(np.mean(series.values[part == one])) for one in np.unique(part)])
    way = float(np.abs(np.diff(levels)).sum())
    return abs(float(levels[-1] - levels[0])) / way if way > 0 and len(levels) >= _STRETCHES // 2 else 0.0


def validation_loss(history: History) -> Series:
    """The validation loss on the scale of the training loss."""
    series = history.series("val_loss").finite()
    return Series(series.steps, series.values * validation_scale(history))


def validation_accuracy(history: History) -> Series:
    """The validation accuracy as it was seen, or as the script prints it where none was; empty without either."""
    seen = history.series("val_accuracy").finite()
    if seen:
        return seen
    printed = dict(history.facts.get("printed_metrics") or {})
    for name in ("val_accuracy", "test_accuracy"):
        points = {int(step): float(value) for step, value in printed.get(name) or ()}
        values = np.array([value for _, value in sorted(points.items())], np.float64)
        if len(values) and np.isfinite(values).all():
            percent = 100.0 if values.max() > 1.0 else 1.0
            return Series(np.array(sorted(points), np.int64), values / percent)
    return seen


def validation_scale(history: History) -> float:
    """What brings a validation loss to the scale of the training loss, which may be a sum or carry a factor."""
    scale = history.facts.get("val_scale")
    return float(scale) if isinstance(scale, (int, float)) else 1.0


def _baseline(history: History) -> float:
    """The loss of the best constant prediction; later readings know more of the data than earlier ones."""
    readings = history.series("baseline_loss").finite()
    late = curves.tail(readings.values, 0.5, 3)
    seen = curves.median(late)
    # Readings are brought to the scale of the whole loss. Where that scale drifts, something is added to the loss
    # rather than multiplied, and the smallest one holds the least of it.
    scales = curves.tail(curves.at_steps(history.series("loss_over_call").finite(), readings), 0.5, 3)
    if len(scales) and float(scales.max()) > ADDED * float(scales.min()) > 0:
        seen = curves.median(late / scales) * float(scales.min())
    elif len(late) and float(late.max()) > 1.3 * float(late.min()):
        seen = float(late.min())
    if not math.isfinite(seen):
        reference = history.facts.get("initial_loss_reference")
        seen = float(reference) if isinstance(reference, (int, float)) else math.nan
    constant_targets = curves.median(history.series("target_std").values) == 0.0
    return seen if seen > 0 and not constant_targets else math.nan


def _even(history: History) -> float:
    """What a cross-entropy over the classes gives to answers that hold all of them for equally likely."""
    facts = history.facts
    classes = facts.get("classes")
    if facts.get("loss") != "cross_entropy" or facts.get("target_kind") != "indices":
        return math.nan
    if not isinstance(classes, int) or classes < 2:
        return math.nan
    scales = history.series("loss_over_call").finite().values
    return math.log(classes) * (curves.median(scales) if len(scales) else 1.0)


def _accuracy(history: History) -> tuple[float, float]:
    """Recent training accuracy, and the accuracy of always answering the most frequent class."""
    series = history.series("accuracy").finite()
    recent = recent_window(history, 0.3, 20).of(series).values
    batch = curves.median(history.series("batch_size").values)
    if not len(recent) or (math.isfinite(batch) and batch * len(recent) < 60):
        return math.nan, math.nan
    return float(np.mean(recent)), chance_level(history)


def _sure_accuracy(history: History, accuracy: float) -> float:
    """The accuracy less what luck in the few sampled batches may have added."""
    readings = len(recent_window(history, 0.3, 20).of(history.series("accuracy").finite()))
    batch = curves.median(history.series("batch_size").values)
    samples = max(1.0, readings * (batch if math.isfinite(batch) else 1.0))
    return accuracy - 2.0 * math.sqrt(max(accuracy * (1.0 - accuracy), 0.0) / samples)


def chance_level(history: History) -> float:
    """The accuracy of always answering the most frequent class; ``nan`` when not known."""
    evaluated = [event.data.get("target_top_share") for event in history.events_of("evaluation")]
    shares = [float(share) for share in evaluated if isinstance(share, (int, float)) and math.isfinite(share)]
    classes = history.facts.get("classes")
    # several labels are as many questions with two answers each
    several = history.facts.get("target_kind") == "binary"
    kinds = max(2, classes) if isinstance(classes, int) and not several else 2
    seen = top_share(history)
    if shares:
        seen = min(float(np.median(shares)), seen) if math.isfinite(seen) else float(np.median(shares))
    if not math.isfinite(seen):
        return 1.0 / kinds if isinstance(classes, int) else math.nan
    batch = curves.median(history.series("batch_size").values)
    if math.isfinite(batch) and batch > 0 and isinstance(classes, int):
        # In a small batch some class is the most frequent one by accident.
        even = 1.0 / kinds
        accident = even + math.sqrt(2.0 * math.log(kinds) * even * (1.0 - even) / batch)
        if seen <= accident:
            return even
    return seen


def top_share(history: History) -> float:
    """The share of the most frequent class among the targets; ``nan`` when not known."""
    seen = curves.median(curves.tail(history.series("target_top_share").finite().values, 0.5, 3))
    if not math.isfinite(seen) and history.facts.get("target_kind") == "binary":
        positive = curves.mean(history.series("target_mean").values)
        seen = max(positive, 1.0 - positive)
    return seen
