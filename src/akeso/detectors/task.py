"""Whether the last activation goes together with loss and targets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors._base import Detector
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
#: Activations that give nothing below 0, and anything above.
ONE_SIDED: Final = frozenset({"relu", "relu6", "softplus", "exp"})
_BOUNDED: Final = frozenset({"tanh", "hardtanh", "softsign"})
#: What gives logarithms of probabilities, a softmax and a sigmoid where their logarithm is taken.
_LOGARITHMS: Final = frozenset({"log_softmax", "logsigmoid", "softmax", "sigmoid"})
#: Losses that compare values.
VALUE_LOSSES: Final = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"})


@dataclass(frozen=True, slots=True)
class Fit:
    """What is known of loss, output and targets."""

    loss: str
    activation: str
    before: str
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
    beyond: float = (
        math.nan
    )  # share of the squared error that is left by targets out of the activation's reach
    called: str = ""  # what the user knows the loss by, where that is not its name in torch
    of_probabilities: bool = False  # whether it takes probabilities where torch takes logits
    least_share: float = math.nan  # of the logits of any sample, were they probabilities
    largest_share: float = math.nan
    at_both_ends: int = 0  # readings whose outputs come near 0 and near 1, where none ever lies beyond

    def figures(self) -> dict[str, Any]:
        """The figures a reader needs."""
        found = {
            "loss": self.called or self.loss,
            "output_activation": self.activation,
            "output_units": self.units,
            "target_kind": self.kind,
            "output_range": _pair(self.low, self.high),
            "target_range": _pair(self.target_low, self.target_high),
        }
        return {name: value for name, value in found.items() if value not in (None, "")}

    def symptom(
        self, name: str, found: Finding, history: History, stand: Standing, **figures: float
    ) -> Symptom:
        """What was found, as an error where it is definite or the training suffers, with further ``figures`` of it."""
        sentence, confidence, definite = found
        if self.called:
            sentence = sentence.replace(f"`{self.loss}`", f"`{self.called}`")
        start, _ = network.extent(history)
        severity: Severity = "error" if definite or stand.suffers(0.5) else "warning"
        evidence = {**self.figures(), **figures, **stand.evidence()}
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
    arguments = facts.get("loss_args") or {}
    return Fit(
        loss,
        str(facts.get("output_activation") or ""),
        str(facts.get("output_activation_of") or ""),
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
        curves.median(curves.tail(history.series("target_beyond").finite().values, 0.3, 3)),
        str(arguments.get("called") or ""),
        arguments.get("expects") == "probabilities",
        _extreme(history, "output_share_min", min),
        curves.median(curves.tail(history.series("output_share_max").finite().values, 0.5, 3)),
        _at_both_ends(history),
    )


def _one_of_several(history: History) -> tuple[dict[str, Any], str, str] | None:
    """What does not fit one of several losses of a step: figures, a sentence, and what helps."""
    loss, beyond = history.facts.get("not_logarithms"), history.facts.get("out_of_reach")
    if isinstance(loss, str):
        return (
            {"loss": loss},
            f"`{loss}` expects log-probabilities but is given values above 0.",
            f"Give `{loss}` the output of `log_softmax`, not that of `softmax` and no logits.",
        )
    if not isinstance(beyond, dict):
        return None
    return (
        {"loss": beyond["loss"], "output_activation": beyond["activation"], "target_size": beyond["size"]},
        f"A {beyond['activation']} gives nothing beyond 1, but `{beyond['loss']}` compares it with targets of a "
        f"typical size of {beyond['size']:.3g}.",
        "Use no activation on the output of a regression, or scale the targets into its range.",
    )


def _sums(shape: object, mean: float) -> tuple[float, ...]:
    """What the targets of a sample come to on average, over whichever axes of the output, one or several."""
    sizes = [size for size in shape[1:] if isinstance(size, int)] if isinstance(shape, list) else []
    spans = [math.prod(sizes[i:j]) for i in range(len(sizes)) for j in range(i + 1, len(sizes) + 1)]
    return tuple(mean * span for span in spans if span > 1)


def _at_both_ends(history: History, near: float = 0.05) -> int:
    """In how many readings outputs come near 0 and near 1; none where any lies outside, for logits would."""
    low, high = (history.series(f"output_{end}").finite() for end in ("min", "max"))
    outside = (low.values < -near / 10).any() or (high.values > 1 + near / 10).any()
    if outside or not np.array_equal(low.steps, high.steps):
        return 0
    return int(np.sum((low.values < near) & (high.values > 1 - near)))


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
    beyond: float = 0.7
    beyond_loss: float = 0.02
    mass: float = 0.1
    shared: float = 2.0
    shared_labels: float = 1.3
    tolerance: float = 1e-3
    rounding: float = 0.01
    sure: float = 0.9
    again: int = 3
    wait: float = 0.5
    unsure: float = 0.1
    unsure_loss: float = 0.5
    worth_a_fall: float = 0.005
    near: float = 0.8
    grown: float = 1.1

    def detect(self, history: History) -> Iterator[Symptom]:
        stand, known = standing(history), fit(history)
        misfit = _one_of_several(history)
        if misfit is not None and stand.steps >= self.min_steps:
            yield self._certain(history, *misfit)
            return
        if stand.steps < self.min_steps or stand.adversarial:
            return
        yield from self._aligned(history, stand)
        if known is None:
            return
        found = self._classes(known, stand) or self._yes_or_no(known, stand) or self._shares(known)
        found = found or self._twice(known, stand) or self._values(known, stand)
        if found is not None:
            yield known.symptom(self.name, found, history, stand)
            return
        sure = curves.median(curves.tail(history.series("output_confidence").finite().values, 0.3, 3))
        timid = self._timid(history, known, stand, sure)
        if timid is not None:
            yield known.symptom(self.name, timid, history, stand, output_confidence=float(f"{sure:.3g}"))

    def _certain(self, history: History, evidence: dict[str, Any], sentence: str, helps: str) -> Symptom:
        """What a single batch has proved: no curve has to tell."""
        return Symptom(self.name, "error", 0.9, network.extent(history)[0], "", evidence, sentence, (helps,))

    def _aligned(self, history: History, stand: Standing) -> Iterator[Symptom]:
        """Labels that are aligned with a sequence want logarithms of probabilities that sum to one in each place."""
        wrong = history.series("output_mass_error").finite().values
        if history.facts.get("loss") != "ctc_loss" or not len(wrong) or not float(wrong.min()) > self.mass:
            return
        above = _extreme(history, "output_max", max) > self.tolerance
        yield Symptom(
            self.name,
            "error",
            0.95,
            network.extent(history)[0],
            "",
            {"loss": "ctc_loss", "mass_error": curves.rounded(curves.median(wrong)), **stand.evidence()},
            "`ctc_loss` expects log-probabilities over the classes, but "
            + (
                "is given values above 0: use `log_softmax`."
                if above
                else "those it is given do not sum to one there: the softmax is taken over another axis."
            ),
            ("Give `ctc_loss` the output of `log_softmax(-1)`, in the order time, batch, classes.",),
        )

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
        if known.of_probabilities:
            return self._probabilities(known, stand)
        logs = known.high <= 0.0
        # A softmax that is hidden in compiled code shows in what it gives: shares of one, up to all of it. Logits do
        # not keep to that in every batch.
        if (
            not act
            and known.units > 2
            and known.least_share > -self.rounding
            and known.largest_share > self.sure
        ):
            return (
                f"`{known.loss}` expects logits but seems to be given probabilities: those of every sample lie between "
                "0 and 1 where they sum to one, so that they are squashed a second time and the loss cannot become "
                "small.",
                0.88,
                True,
            )
        if act in _PROBABILITIES and not logs:
            return (
                f"`cross_entropy` expects logits but is given the output of a {act}: probabilities "
                "are squashed a "
                f"second time and the loss cannot become small.",
                0.95,
                True,
            )
        if act in ONE_SIDED and self._harmed(stand, self.one_sided):
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

    def _probabilities(self, known: Fit, stand: Standing) -> Finding | None:
        """Keras takes probabilities over the classes, unless it is told that they are logits."""
        act = known.activation
        if act == "none":
            return (
                f"`{known.loss}` expects probabilities but is given the plain output of the last layer: put a "
                "softmax there, or say `from_logits=True`.",
                0.95,
                True,
            )
        if act not in ("", "softmax") and self._harmed(stand, self.one_sided):
            return f"`{known.loss}` expects the output of a softmax, not of a {act}.", 0.8, False
        return None

    def _yes_or_no(self, known: Fit, stand: Standing) -> Finding | None:
        act = known.activation
        # One unit that was picked out of a softmax over several is as good as a sigmoid.
        if known.units == 1 and act == "softmax" and not known.low < 1.0 - self.tolerance:
            return "A softmax over a single unit gives 1 whatever the input: use a sigmoid.", 0.97, True
        if known.loss == "binary_cross_entropy_with_logits":
            # As above: a sigmoid that is hidden goes up to both ends again and again, and never beyond.
            if not act and known.at_both_ends >= self.again:
                return (
                    f"`{known.loss}` expects logits but seems to be given probabilities: all lie between 0 and 1, and "
                    "come near both, so that nothing below one half can be said.",
                    0.88,
                    True,
                )
            if act in _PROBABILITIES and (known.high > 0.0 or known.low >= 0.0):
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
            if act in ONE_SIDED and self._harmed(stand, self.one_sided):
                return f"The logits come out of a {act}: nothing below one half can be said.", 0.85, False
            if act in _BOUNDED and self._harmed(stand, self.bounded):
                return f"The logits come out of a {act}: they cannot be confident within ±1.", 0.85, False
        if known.loss == "binary_cross_entropy":
            odd = act in ONE_SIDED or act in _BOUNDED or act in ("none", "clamp")
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

    def _twice(self, known: Fit, stand: Standing) -> Finding | None:
        """One function right after another that leaves the last one half of its range, or less."""
        squashed = known.before in _PROBABILITIES | ONE_SIDED | _BOUNDED
        if known.activation not in ("sigmoid", "softmax") or not squashed:
            return None
        if known.loss not in VALUE_LOSSES | {"binary_cross_entropy", "nll_loss"} or not self._harmed(
            stand, 0.25
        ):
            return None
        twice = "twice" if known.before == known.activation else f"to what a {known.before} gives"
        can = "cannot be sure of anything" if known.before in _BOUNDED else "never says less than one half"
        why = (
            "no class can be far more likely than the others"
            if known.activation == "softmax"
            else f"it {can}"
        )
        return f"A {known.activation} is applied {twice} before `{known.loss}`: {why}.", 0.93, True

    def _timid(self, history: History, known: Fit, stand: Standing, sure: float) -> Finding | None:
        """Answers that are right as a rule, and given with next to no confidence, so that the loss stays at chance.

        Logits that are bounded, as cosines are, cannot say more than that over many classes. Others that are only on
        their way show it in a loss that still falls.
        """
        right = 1.0 - stand.remaining_error * (1.0 - stand.chance)
        late = network.up_to_date(history, "output_confidence") and stand.over >= self.wait
        falls = stand.recent.falls and -stand.recent.change > self.worth_a_fall * stand.baseline
        falls = falls and not self._cosines(history, known)
        if known.loss != "cross_entropy" or not late or falls or not self._harmed(stand, self.unsure_loss):
            return None
        if not max(sure, stand.chance) <= self.unsure * right:
            return None
        return (
            f"The answers are right in {right:.0%} of all cases but given with a probability of {sure:.2g} only: the "
            f"logits lie too close together for {known.units} classes, and {stand.remaining_loss:.0%} of a constant "
            "prediction's loss is left, of all samples alike. A temperature is too high, or cosines are given without "
            "a factor.",
            0.85,
            False,
        )

    def _cosines(self, history: History, known: Fit) -> bool:
        """Whether no logit was ever beyond 1 in size, and the largest have long come near to it."""
        largest = history.series("output_max").finite().values
        before, late = (float(np.max(part, initial=0.0)) for part in np.array_split(largest, 3)[1:])
        within = -1.0 - self.tolerance <= known.low and known.high <= 1.0 + self.tolerance
        return within and late >= self.near and late <= self.grown * before

    def _shares(self, known: Fit) -> Finding | None:
        """A softmax shares out 1, and the targets ask for several times as much, over whichever axis it is."""
        if known.activation != "softmax" or known.loss not in VALUE_LOSSES | {"binary_cross_entropy"}:
            return None
        least = min(known.target_sums, default=0.0)
        labels = known.kind == "binary" and known.loss == "binary_cross_entropy"
        needed = self.shared_labels if labels else self.shared
        if known.kind in ("one-hot", "probabilities") or known.high <= 0.0 or not least >= needed:
            return None
        return (
            f"A softmax makes outputs that sum to 1, but the targets of a sample sum to {least:.3g}: they cannot be "
            "reached. Use a sigmoid per unit, or none.",
            0.93,
            True,
        )

    def _values(self, known: Fit, stand: Standing) -> Finding | None:
        if known.loss not in VALUE_LOSSES or known.activation not in REACH:
            return None
        low, high = REACH[known.activation]
        width = known.target_high - known.target_low
        if not width > 0:
            return None
        missed = max(0.0, low - known.target_low) + max(0.0, known.target_high - high)
        outside = min(1.0, missed / width)  # where none of it can be, what is missed is wider than the range
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
        # Noise about an edge goes to either side of it: of the error it leaves, half lies beyond.
        if known.beyond >= self.beyond and self._harmed(stand, self.beyond_loss):
            return (
                f"{text} Of the squared error that is left {known.beyond:.0%} are due to that.",
                0.85,
                False,
            )
        dead = known.activation == "relu" and known.high <= 0.0
        if dead and self._harmed(stand, 0.9):
            return "The ReLU on the output has died: every prediction is 0.", 0.85, False
        return None
