"""Whether output activation, loss and targets go together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from akeso.detectors import curves, network
from akeso.detectors._base import Detector
from akeso.detectors.measures import directions_alone
from akeso.detectors.standing import Standing, standing
from akeso.diagnosis import Severity, Symptom
from akeso.history import History

#: What does not go together, how sure that is, and whether it is wrong in itself, whatever comes of it.
Finding: TypeAlias = tuple[str, float, bool]
_INF: Final = math.inf
#: The values an output activation can give.
REACH: Final[dict[str, tuple[float, float]]] = {
    "softmax": (0.0, 1.0),
    "sigmoid": (0.0, 1.0),
    "hardsigmoid": (0.0, 1.0),
    "clamp": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "hardtanh": (-1.0, 1.0),
    "softsign": (-1.0, 1.0),
    "relu": (0.0, _INF),
    "relu6": (0.0, 6.0),
    "softplus": (0.0, _INF),
    "exp": (0.0, _INF),
    "logsigmoid": (-_INF, 0.0),
    "log_softmax": (-_INF, 0.0),
}
_PROBABILITIES: Final = frozenset({"softmax", "sigmoid", "hardsigmoid", "clamp"})
_ONE_SIDED: Final = frozenset({"relu", "relu6", "softplus", "exp"})
_BOUNDED: Final = frozenset({"tanh", "hardtanh", "softsign"})
#: What gives logarithms of probabilities, a softmax and a sigmoid where their logarithm is taken.
_LOGARITHMS: Final = frozenset({"log_softmax", "logsigmoid", "softmax", "sigmoid"})
_CLASS_LOSSES: Final = frozenset({"cross_entropy", "nll_loss"})
_VALUE_LOSSES: Final = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"})
_BINARY_LOSSES: Final = frozenset({"binary_cross_entropy", "binary_cross_entropy_with_logits"})
#: Losses that multiply the output by the target: no is -1 to them, and 0 says nothing.
_SIGNED_LOSSES: Final = frozenset({"soft_margin_loss"})


@dataclass(frozen=True, slots=True)
class Fit:
    """What is known of loss, output and targets."""

    loss: str
    activation: str
    units: int
    kind: str
    low: float
    high: float
    target_low: float
    target_high: float
    target_mean: float
    target_std: float
    distinct: int
    mass_error: float = math.nan
    target_sums: tuple[float, ...] = ()

    def figures(self) -> dict[str, Any]:
        """The figures a reader needs."""
        found = {
            "loss": self.loss,
            "output_activation": self.activation,
            "output_units": self.units,
            "target_kind": self.kind,
            "output_range": _pair(self.low, self.high),
            "target_range": _pair(self.target_low, self.target_high),
        }
        return {name: value for name, value in found.items() if value not in (None, "")}

    def symptom(self, name: str, found: Finding, history: History, stand: Standing) -> Symptom:
        """What was found, as an error where it is definite or the training suffers."""
        sentence, confidence, definite = found
        start, _ = network.extent(history)
        severity: Severity = "error" if definite or stand.suffers(0.5) else "warning"
        evidence = {**self.figures(), **stand.evidence()}
        return Symptom(name, severity, confidence, start, "", evidence, sentence)


def _pair(low: float, high: float) -> list[float] | None:
    return [float(f"{low:.3g}"), float(f"{high:.3g}")] if math.isfinite(low) and math.isfinite(high) else None


def fit(history: History) -> Fit | None:
    """What is known; ``None`` when no loss function was seen."""
    facts = history.facts
    loss = facts.get("loss")
    if not isinstance(loss, str):
        return None
    units, distinct = facts.get("classes"), facts.get("target_distinct")
    return Fit(
        loss,
        str(facts.get("output_activation") or ""),
        units if isinstance(units, int) else 0,
        str(facts.get("target_kind") or ""),
        _extreme(history, "output_min", min),
        _extreme(history, "output_max", max),
        curves.median(history.series("target_min").values),
        curves.median(history.series("target_max").values),
        curves.median(history.series("target_mean").values),
        curves.median(history.series("target_std").values),
        distinct if isinstance(distinct, int) else 0,
        curves.median(history.series("output_mass_error").finite().values),
        _sums(facts.get("output_shape"), curves.median(history.series("target_mean").values)),
    )


def _sums(shape: object, mean: float) -> tuple[float, ...]:
    """What the targets of a sample come to on average, over whichever axes of the output, one or several."""
    sizes = [size for size in shape[1:] if isinstance(size, int)] if isinstance(shape, list) else []
    spans = [math.prod(sizes[i:j]) for i in range(len(sizes)) for j in range(i + 1, len(sizes) + 1)]
    return tuple(mean * span for span in spans if span > 1)


def _extreme(history: History, signal: str, choose: Any) -> float:
    values = history.series(signal).finite().values
    return float(choose(values)) if len(values) else math.nan


@dataclass(frozen=True)
class ImproperOutputActivation(Detector):
    """The last activation keeps the loss from becoming small."""

    name: ClassVar[str] = "improper-output-activation"
    min_steps: int = 3
    harm_steps: int = 15
    one_sided: float = 0.25
    bounded: float = 0.25
    reach: float = 0.3
    mass: float = 0.1
    shared: float = 2.0
    tolerance: float = 1e-3

    def detect(self, history: History) -> Iterator[Symptom]:
        stand, known = standing(history), fit(history)
        if known is None or stand.steps < self.min_steps or stand.adversarial:
            return
        found = self._classes(known, stand) or self._yes_or_no(known, stand) or self._shares(known)
        found = found or self._values(known, stand)
        if found is not None:
            yield known.symptom(self.name, found, history, stand)

    def _harmed(self, stand: Standing, remaining: float) -> bool:
        """Judged by the loss: a cap on confidence costs loss before it costs accuracy."""
        left = stand.remaining_loss
        return stand.steps >= self.harm_steps and (
            stand.diverged or (math.isfinite(left) and left >= remaining)
        )

    def _classes(self, known: Fit, stand: Standing) -> Finding | None:
        act = known.activation
        if known.loss == "kl_div" and known.high > self.tolerance:
            return "`kl_div` expects log-probabilities but is given values above 0.", 0.9, True
        if known.loss == "nll_loss" and known.high > self.tolerance:
            return (
                "`nll_loss` expects log-probabilities but is given values above 0: use `log_softmax`.",
                0.95,
                True,
            )
        if known.loss == "nll_loss" and act == "logsigmoid":
            return (
                "`nll_loss` expects log-probabilities over all classes, but a log-sigmoid lets every class be "
                "likely at once: answering yes to all of them makes the loss smallest. Use `log_softmax`.",
                0.95,
                True,
            )
        if known.loss == "nll_loss" and act in _LOGARITHMS and known.mass_error > self.mass:
            return (
                "`nll_loss` expects log-probabilities over the classes, but those it is given do not sum to one "
                "there: the softmax is taken over another axis.",
                0.93,
                True,
            )
        if known.loss != "cross_entropy" or known.units == 1:
            return None
        logs = known.high <= 0.0
        if act in _PROBABILITIES and not logs:
            return (
                f"`cross_entropy` expects logits but is given the output of a {act}: probabilities "
                "are squashed a "
                f"second time and the loss cannot become small.",
                0.95,
                True,
            )
        if act in _ONE_SIDED and self._harmed(stand, self.one_sided):
            return (
                f"A {act} stands before `cross_entropy`: logits can never be negative and units die.",
                0.8,
                False,
            )
        if act in _BOUNDED and self._harmed(stand, self.bounded):
            return (
                f"A {act} stands before `cross_entropy`: logits within ±1 cannot be confident.",
                0.85,
                False,
            )
        return None

    def _yes_or_no(self, known: Fit, stand: Standing) -> Finding | None:
        act = known.activation
        # One unit that was picked out of a softmax over several is as good as a sigmoid.
        if known.units == 1 and act == "softmax" and not known.low < 1.0 - self.tolerance:
            return "A softmax over a single unit gives 1 whatever the input: use a sigmoid.", 0.97, True
        if known.loss == "binary_cross_entropy_with_logits":
            if act in _PROBABILITIES and known.high > 0.0:
                return (
                    f"`binary_cross_entropy_with_logits` expects logits but is given the output of a {act}: "
                    f"nothing below one half can be said.",
                    0.95,
                    True,
                )
            if act in _LOGARITHMS and known.high <= 0.0:
                return (
                    f"`{known.loss}` expects logits but is given logarithms of probabilities ({act}): they are never "
                    "above 0, so that no label can be held for more likely than not.",
                    0.95,
                    True,
                )
            if act in _ONE_SIDED and self._harmed(stand, self.one_sided):
                return f"A {act} stands before the logits: nothing below one half can be said.", 0.85, False
            if act in _BOUNDED and self._harmed(stand, self.bounded):
                return f"A {act} stands before the logits: they cannot be confident within ±1.", 0.85, False
        if known.loss == "binary_cross_entropy":
            odd = act in _ONE_SIDED or act in _BOUNDED or act in ("none", "clamp")
            if odd and self._harmed(stand, self.one_sided):
                return (
                    "`binary_cross_entropy` expects the output of a sigmoid"
                    + (": where a clamp cuts off, nothing is learned." if act == "clamp" else "."),
                    0.85 if act == "clamp" else 0.75,
                    False,
                )
            if act == "softmax" and known.kind == "binary" and known.units > 1 and self._harmed(stand, 0.5):
                return "A softmax makes labels exclude each other that may hold together.", 0.75, False
        return None

    def _shares(self, known: Fit) -> Finding | None:
        """A softmax shares out 1, and the targets ask for several times as much, over whichever axis it is."""
        if known.activation != "softmax" or known.loss not in _VALUE_LOSSES | {"binary_cross_entropy"}:
            return None
        least = min(known.target_sums, default=0.0)
        if known.kind in ("one-hot", "probabilities") or known.high <= 0.0 or not least >= self.shared:
            return None
        return (
            f"A softmax makes outputs that sum to 1, but the targets of a sample sum to {least:.3g}: they cannot be "
            "reached. Use a sigmoid per unit, or none.",
            0.93,
            True,
        )

    def _values(self, known: Fit, stand: Standing) -> Finding | None:
        if known.loss not in _VALUE_LOSSES or known.activation not in REACH:
            return None
        low, high = REACH[known.activation]
        width = known.target_high - known.target_low
        if not width > 0:
            return None
        outside = (max(0.0, low - known.target_low) + max(0.0, known.target_high - high)) / width
        below = known.target_mean - known.target_std < low - 0.05 * width
        above = known.target_mean + known.target_std > high + 0.05 * width
        text = (
            f"The output goes through a {known.activation} but the targets lie between "
            f"{known.target_low:.3g} and "
            f"{known.target_high:.3g}: {outside:.0%} of that range cannot be reached."
        )
        if outside > 0.1 and (below or above):
            return text, 0.93, True
        if outside > 0.1 and self._harmed(stand, self.reach):
            return text, 0.8, False
        dead = known.activation == "relu" and known.high <= 0.0
        if dead and self._harmed(stand, 0.9):
            return "The ReLU on the output has died: every prediction is 0.", 0.85, False
        return None


@dataclass(frozen=True)
class ImproperLoss(Detector):
    """The loss is not made for these targets."""

    name: ClassVar[str] = "improper-loss"
    min_steps: int = 3
    harm_steps: int = 15
    indices: float = 0.15
    uneven_indices: float = 0.5
    one_hot: float = 0.6
    one_hot_at_end: float = 0.5
    smoothing: float = 0.5
    ignored: float = 0.5
    drop: float = 0.25
    most_classes: int = 50
    tolerance: float = 1e-3

    def detect(self, history: History) -> Iterator[Symptom]:
        stand, known = standing(history), fit(history)
        if known is None or stand.steps < self.min_steps or stand.adversarial:
            return
        found = self._classes(known, stand) or self._binary(known) or self._values(known, stand)
        found = found or self._smoothed(history, known) or self._left_out(history, known)
        found = found or self._sign(history, known, stand) or self._own(history, known, stand)
        found = found or directions_alone(history) or self._counts(history, known)
        if found is not None:
            yield known.symptom(self.name, found, history, stand)

    def _counts(self, history: History, known: Fit) -> Finding | None:
        """A loss for logarithms of rates that is given the rates."""
        logarithms = dict(history.facts.get("loss_args") or {}).get("log_input", True)
        if known.loss != "poisson_nll_loss" or not logarithms or known.activation not in _ONE_SIDED:
            return None
        return (
            f"`poisson_nll_loss` takes the output for the logarithm of a rate, but it goes through a "
            f"{known.activation}, which makes it a rate: say `log_input=False`, or leave the {known.activation} out.",
            0.9,
            True,
        )

    def _sign(self, history: History, known: Fit, stand: Standing) -> Finding | None:
        """A loss that cannot be negative by itself is, and what it measures does not get better."""
        alone = not isinstance(history.facts.get("loss_terms"), int)
        never = known.loss in _VALUE_LOSSES | _BINARY_LOSSES | {"cross_entropy"}
        if not alone or not never or not stand.last < 0 or stand.remaining_error < 0.9:
            return None
        return (
            f"`{known.loss}` is minimised with the wrong sign: the worse the answers, the lower.",
            0.93,
            True,
        )

    def _own(self, history: History, known: Fit, stand: Standing) -> Finding | None:
        """A loss written by hand that falls while the accuracy stays where guessing would be."""
        correct = history.series("val_accuracy").finite().values
        matrices = network.weights(history)
        if known.loss != "custom" or len(correct) < 3 or not matrices or not stand.improved:
            return None
        units = matrices[-1].shape[0]
        chance = 1.0 / max(2, units)
        size = history.facts.get("val_size")
        luck = 3.0 * math.sqrt(chance * (1 - chance) / size) if isinstance(size, int) and size > 0 else 0.05
        drop = (stand.first - stand.last) / max(abs(stand.first), 1e-12)
        best = float(correct.max())
        if units > self.most_classes or drop < self.drop or best > chance + max(luck, 0.05):
            return None
        return (
            f"The loss falls but the accuracy never exceeds {best:.0%}, what guessing gives: this loss "
            "rewards something else than right answers (a wrong sign?).",
            0.85,
            True,
        )

    def _classes(self, known: Fit, stand: Standing) -> Finding | None:
        if known.loss not in _CLASS_LOSSES:
            return None
        if known.units == 1:
            return (
                f"`{known.loss}` over a single output unit is always 0: there is nothing to choose from.",
                0.97,
                True,
            )
        if known.kind == "values":
            return (
                f"`{known.loss}` is given values as targets that are no classes and no probabilities.",
                0.92,
                True,
            )
        if known.kind == "binary" and stand.steps >= self.harm_steps and stand.suffers(0.5):
            return (
                "`cross_entropy` assumes one class per sample, but several labels hold at once.",
                0.7,
                False,
            )
        return None

    def _smoothed(self, history: History, known: Fit) -> Finding | None:
        """Whether smoothing leaves the right class hardly more than the others."""
        smoothing = dict(history.facts.get("loss_args") or {}).get("label_smoothing")
        if known.loss != "cross_entropy" or not isinstance(smoothing, (int, float)):
            return None
        if not smoothing >= self.smoothing:
            return None
        return (
            f"Label smoothing of {smoothing:g} spreads most of every target over all {known.units} classes: "
            "0.1 is usual, and more than half drowns the right answer.",
            0.93,
            True,
        )

    def _left_out(self, history: History, known: Fit) -> Finding | None:
        """Whether the loss leaves out a class that is as frequent as others, in samples with one label each.

        In sequences and pictures the class left out is padding or background.
        """
        ignored = curves.median(history.series("target_ignored").finite().values)
        shapes = [history.facts.get(f"{what}_shape") for what in ("target", "output", "input")]
        target, output, given = (shape if isinstance(shape, list) else [] for shape in shapes)
        one_each = len(target) == 1 and len(output) == 2 and len(given) > 1 and given[0] >= target[0]
        if not one_each or known.units < 2 or not ignored * known.units >= self.ignored:
            return None
        index = dict(history.facts.get("loss_args") or {}).get("ignore_index")
        return (
            f"`ignore_index={index}` leaves class {index} out of the loss, {ignored:.0%} of the samples: it is never "
            "learned. Take the argument away if the class is to be told from the others.",
            0.85,
            False,
        )

    def _binary(self, known: Fit) -> Finding | None:
        if known.loss in _SIGNED_LOSSES and known.kind in ("binary", "one-hot"):
            if abs(known.target_low) > self.tolerance or not known.target_high > 0:
                return None
            return (
                f"`{known.loss}` needs targets of -1 and 1, but they are 0 and 1: it learns nothing from "
                "those that are 0, and answering yes to everything makes it smallest.",
                0.95,
                True,
            )
        if known.loss not in _BINARY_LOSSES:
            return None
        if known.target_high > 1.0 + self.tolerance or known.target_low < -self.tolerance:
            return (
                f"`{known.loss}` needs targets between 0 and 1, but they lie between "
                f"{known.target_low:.3g} and "
                f"{known.target_high:.3g}.",
                0.96,
                True,
            )
        return None

    def _values(self, known: Fit, stand: Standing) -> Finding | None:
        if known.loss not in _VALUE_LOSSES or stand.steps < self.harm_steps:
            return None
        if known.units == 1 and known.kind == "values" and known.distinct >= 3:
            whole = known.target_low == 0 and known.distinct == round(known.target_high) + 1
            middle, even = known.target_high / 2, math.sqrt((known.distinct**2 - 1) / 12)
            uniform = (
                abs(known.target_mean - middle) < 0.15 * middle and abs(known.target_std / even - 1) < 0.2
            )
            if whole and stand.suffers(self.indices if uniform else self.uneven_indices):
                return (
                    f"`{known.loss}` treats the {known.distinct} class numbers as quantities: use one "
                    "output unit per class and `cross_entropy`.",
                    0.85 if uniform else 0.7,
                    False,
                )
        at_end = stand.finished and stand.recent.falls and stand.remaining_loss >= self.one_hot_at_end
        if known.kind == "one-hot" and known.units > 2 and (stand.suffers(self.one_hot) or at_end):
            if known.loss == "l1_loss":
                return "`l1_loss` on one-hot targets is smallest for answering nothing at all.", 0.88, False
            return (
                f"`{known.loss}` on one-hot targets has hardly any gradient far from the answer.",
                # The more classes, the smaller the share of a squared error that the right one has.
                min(0.7, 0.5 + 0.1 * math.log10(known.units)),
                False,
            )
        return None
