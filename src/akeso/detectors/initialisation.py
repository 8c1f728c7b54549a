"""Weights that start all alike, far too small or far too large."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors._base import Detector
from akeso.detectors.gradients import effect
from akeso.detectors.standing import Standing, standing, validation_loss
from akeso.diagnosis import Symptom
from akeso.history import History

#: The gates of recurrent layers, whose biases lie behind each other in one tensor.
_GATES: Final = {"LSTM": 4, "GRU": 3}
_SMALL_TABLES: Final = (
    "Draw embeddings that are multiplied with each other small, as by `nn.init.normal_(embedding.weight, std=0.05)`: "
    "torch draws them with a deviation of 1."
)


@dataclass(frozen=True)
class PoorInitialisation(Detector):
    """The deviation of the initial weights does not fit the width of the layers, and the training suffers."""

    name: ClassVar[str] = "poor-initialisation"
    min_steps: int = 15
    large: float = 5.0
    small: float = 0.1
    constant: float = 1e-6
    remaining: float = 0.6
    remaining_if_copies: float = 0.3
    remaining_in_validation: float = 0.5
    loud: float = 10.0
    large_if_loud: float = 3.0
    echo: float = 1.5
    closed: float = 4.0
    effective: float = 0.05

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        if stand.steps < self.min_steps or stand.adversarial:
            return
        stuck = self._stuck(history)
        if stuck and stand.suffers(self.remaining_if_copies):
            yield self._never_begins(history, stand, stuck)
            return
        copies = self._copies(history)
        left = self.remaining_if_copies if copies else self.remaining
        suffers = stand.suffers(left)
        if not suffers and not self._fails_validation(history, stand):
            return
        everything = [weight for weight in network.weights(history) if math.prod(weight.shape) > 1]
        everything = self._units(everything)
        matrices = [weight for weight in everything if min(weight.shape[:2]) > 1] or everything
        if not matrices:
            yield from self._tables(history, stand)
            return
        gains = np.asarray([weight.init_std * math.sqrt(weight.fan_in) for weight in matrices])
        alike = np.asarray([self._alike(weight) for weight in matrices])
        offset = np.asarray([abs(w.init_mean) * w.fan_in for w in matrices])
        # What tells the units of a last layer apart are their targets: it may start with equal weights.
        hidden = np.asarray(
            [
                equal and w is not everything[-1] and (copies or not self._begins(history, w))
                for w, equal in zip(matrices, alike, strict=True)
            ]
        )
        forgetful = [
            (w, gain) for w, gain in zip(matrices, gains, strict=True) if _remembers(w) and gain < self.small
        ]
        echoing = [
            (w, gain) for w, gain in zip(matrices, gains, strict=True) if _remembers(w) and gain > self.echo
        ]
        shut = [(name, bias) for name, bias in _gates(history) if bias <= -self.closed]
        middle = float(np.median(gains[~alike])) if (~alike).any() else 0.0
        start, _ = network.extent(history)
        loud = stand.first >= self.loud * stand.baseline
        too_large = middle > self.large or (loud and (middle > self.large_if_loud or bool(echoing)))
        if not suffers and not too_large:
            return  # samples are learned by heart with large weights; any others show their harm in training
        if hidden.any():
            worst = matrices[int(np.argmax(hidden))]
            sentence = (
                f"The weights of {network.called(worst.layer)} all start at {worst.init_mean:g}: its units can never "
                "differ."
            )
            confidence = 0.92
        elif shut:
            layer, bias = min(shut, key=lambda one: one[1])
            worst = next((w for w in network.weights(history) if w.layer == layer), matrices[0])
            sentence = (
                f"The biases of {network.called(layer)} start so far below 0 ({bias:.2g} if in one gate) that a gate "
                "is all but closed: nothing gets through it, forward or backward."
            )
            confidence = 0.85
        elif too_large and echoing and middle <= self.large_if_loud:
            worst, middle = max(echoing, key=lambda one: one[1])
            sentence = (
                f"The recurrent weights of {network.called(worst.layer)} start at {middle:.2g} times what their width "
                "asks for: what goes round in them grows from step to step."
            )
            confidence = 0.85
        elif not too_large and np.median(offset) > 3 * self.large and middle < float(np.median(offset)):
            worst = matrices[int(np.argmax(offset))]
            sentence = (
                f"The initial weights of {network.called(worst.layer)} lie on one side of 0: their mean of "
                f"{worst.init_mean:.2g} adds up to {float(offset.max()):.2g} over {worst.fan_in} inputs."
            )
            confidence = 0.7
        elif too_large:
            worst = matrices[int(np.argmax(gains))]
            sentence = (
                f"The initial weights are {middle:.2g} times as large as the width of the layers asks for."
            )
            confidence = min(0.95, 0.7 + 0.1 * math.log10(max(1.0, middle / self.large)) * 2)
        elif forgetful and not middle < self.small:
            worst, middle = forgetful[0]
            sentence = (
                f"The recurrent weights of {network.called(worst.layer)} start at {middle:.2g} times what their width "
                "asks for: what came a few steps before is forgotten."
            )
            confidence = 0.8
        elif middle < self.small and not alike.all() and not self._effective(history, stand):
            worst = matrices[int(np.argmin(gains))]
            sentence = (
                f"The initial weights are only {middle:.2g} times what the width of the layers asks for."
            )
            confidence = min(0.95, 0.65 + 0.1 * math.log10(self.small / max(middle, 1e-12)) * 2)
        else:
            return
        yield Symptom(
            self.name,
            "error" if suffers else "warning",
            confidence,
            start,
            worst.layer,
            {
                "init_std_times_sqrt_inputs": curves.rounded(middle),
                "init_std": curves.rounded(worst.init_std),
                "init_mean": curves.rounded(worst.init_mean),
                "constant_matrices": int(alike.sum()),
                **stand.evidence(),
            },
            sentence,
        )

    def _units(self, weights: list[network.Weight]) -> list[network.Weight]:
        """The weights without those of one figure beside drawn ones of the same shape in the same layer.

        Where weights are random themselves, that figure is how far they spread: the means tell the units apart.
        """
        drawn = {(weight.layer, weight.shape) for weight in weights if not self._alike(weight)}
        return [one for one in weights if not self._alike(one) or (one.layer, one.shape) not in drawn]

    def _tables(self, history: History, stand: Standing) -> Iterator[Symptom]:
        """Models of embeddings alone, whose products start so large that the run goes by in making them smaller.

        What has no other weights has its first answers from nowhere else.
        """
        drawn = [table for table in network.tables(history) if table.init_std > 0]
        loud = stand.first >= self.loud * stand.baseline and stand.plateau >= 0.5
        if not drawn or not loud or not stand.suffers(self.remaining):
            return
        said = history.series("output_std").finite().values[:1]
        wanted = curves.median(history.series("target_std").finite().values)
        times = float(said[0]) / wanted if len(said) and wanted > 0 else math.nan
        if not times >= self.large_if_loud:
            return
        worst = max(drawn, key=lambda table: table.init_std)
        yield Symptom(
            self.name,
            "error",
            0.85,
            network.extent(history)[0],
            worst.layer,
            {
                "init_std": curves.rounded(worst.init_std),
                "first_output_over_target_std": curves.rounded(times),
                **stand.evidence(),
            },
            f"The embeddings start too large: the first predictions are spread {times:.2g} times as far as the "
            f"targets, and {stand.plateau:.0%} of the run went by above what a constant prediction loses.",
            (_SMALL_TABLES,),
        )

    def _effective(self, history: History, stand: Standing) -> bool:
        """Whether the weights, small as they are, move the loss from the first step on: something makes up for it."""
        start, _ = network.extent(history)
        return effect(history, network.Window(start, start), stand) >= self.effective

    def _fails_validation(self, history: History, stand: Standing) -> bool:
        """Whether a run that is as good as over leaves much of a constant prediction's loss on held-out samples."""
        values = validation_loss(history).values[-3:]
        over = stand.finished or stand.over >= 0.9
        left = self.remaining_in_validation * stand.baseline
        return over and len(values) == 3 and bool(np.min(values) >= left)

    def _copies(self, history: History) -> bool:
        """Whether nothing tells the units of any layer apart: one layer that is not alike would.

        A layer of zeros at the end of a branch, or one beside frozen layers, starts alike for good reasons.
        """
        matrices = network.weights(history)
        several = len(matrices) > 1 and matrices[0].shape[0] > 1
        whole = all(parameter.trainable for parameter in history.parameters)
        return several and whole and all(self._alike(weight) for weight in matrices)

    def _begins(self, history: History, weight: network.Weight) -> bool:
        """Whether weights that start at zero are taught otherwise by the layers behind, as the ends of branches are."""
        zero = weight.init_mean == 0.0 and weight.init_std == 0.0
        return zero and bool(history.series("grad_l2", weight.name).finite().values[:3].any())

    def _stuck(self, history: History) -> list[network.Weight]:
        """Weights that start at zero and have never got any gradient, as the factors of a product of zeros do.

        Those that a branch starts with on purpose get one from the first step on, or from the second.
        """
        zeros = [
            weight
            for weight in (*network.tables(history), *network.weights(history))
            if weight.init_mean == 0.0 and weight.init_std == 0.0
        ]
        read = [(weight, history.series("grad_l2", weight.name).finite()) for weight in zeros]
        still = [weight for weight, gradient in read if len(gradient) >= 3 and not gradient.values.any()]
        return still if len(still) > 1 else []

    def _never_begins(self, history: History, stand: Standing, stuck: list[network.Weight]) -> Symptom:
        start, _ = network.extent(history)
        names = f"{stuck[0].name} and {stuck[1].name if len(stuck) == 2 else f'{len(stuck) - 1} more'}"
        return Symptom(
            self.name,
            "error",
            0.95,
            start,
            stuck[0].layer,
            {
                "parameters": [weight.name for weight in stuck[:8]],
                "init_std": 0.0,
                "init_mean": 0.0,
                **stand.evidence(),
            },
            f"{names} start at zero and never get a gradient: each is multiplied by zeros of the other"
            + ("" if len(stuck) == 2 else "s")
            + ", so none ever begins to learn.",
        )

    def _alike(self, weight: network.Weight) -> bool:
        return weight.init_std <= self.constant * max(1.0, abs(weight.init_mean))


def _remembers(weight: network.Weight) -> bool:
    """Whether the state of a plain recurrent layer goes through these weights; gates have a way around them."""
    return "weight_hh" in weight.name and weight.role.endswith("RNN")


def _gates(history: History) -> list[tuple[str, float]]:
    """What the biases of each layer with gates come to, were all of it in one gate.

    A forget gate that starts at 1 or 2 is good practice; where biases are to fit the length of the memory, those of two
    gates cancel out.
    """
    found = []
    for layer in history.layers:
        gates = next((count for kind, count in _GATES.items() if kind in layer.kind), 0)
        sums: dict[str, float] = {}
        for parameter in layer.parameters if gates else ():
            own = parameter.name.rpartition(".")[2]
            if own.startswith("bias_") and parameter.trainable:
                part = own.removeprefix("bias_ih").removeprefix("bias_hh")
                sums[part] = sums.get(part, 0.0) + gates * parameter.init_mean
        found += [(layer.name, value) for value in sums.values()]
    return found
