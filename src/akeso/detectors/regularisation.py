"""Penalties and dropout that leave too little to learn from."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors._base import Detector
from akeso.detectors.standing import Standing, standing, validation_loss
from akeso.diagnosis import Symptom
from akeso.history import History

#: Optimizers that add decay to the gradient; with others it goes its own way.
_COUPLED = ("SGD", "Adam", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam", "Adamax", "ASGD")
#: What helps against a prior that leaves nothing of the data.
_LESS_PULL = (
    "Weigh the KL term less, and reduce both terms alike: a sum over the values of a sample, then a mean over samples.",
    "Let the weight of the KL term grow from 0 over the first epochs.",
)


@dataclass(frozen=True)
class OverRegularised(Detector):
    """A penalty pulls the weights to zero faster than the data can teach them anything."""

    name: ClassVar[str] = "over-regularised"
    min_steps: int = 50
    pull: float = 0.7
    alive: float = 1e-4
    shrunk: float = 0.3
    worn: float = 0.1
    dropout: float = 0.85
    learned: float = 0.9
    remaining: float = 0.7
    remaining_at_least: float = 0.5
    balance: float = 0.4
    worth: float = 0.5
    remaining_in_balance: float = 0.25
    of_the_prior: float = 0.05
    not_reconstructed: float = 0.9

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        left = max(
            (x for x in (stand.remaining_loss, stand.remaining_error) if math.isfinite(x)), default=1.0
        )
        harmed = stand.suffers(self.remaining_at_least) and left >= self.remaining
        if stand.steps < self.min_steps or stand.diverged:
            return
        if history.facts.get("task") == "autoencoder":
            yield from self._collapsed(history, stand)
        decay = max((float(o.get("weight_decay") or 0.0) for o in _optimizers(history)), default=0.0)
        kept = self._kept(history)
        bound = self._bound(history, decay)
        # Where decay lets no weight stay as large as it was drawn, and hardly anything is left, less harm will do.
        left_much = stand.over >= 0.5 and stand.remaining_loss >= self.remaining_in_balance
        worn = bound <= 1.0 and kept <= self.worn and left_much
        if not harmed and not worn:
            yield from self._in_balance(history, stand)
            return
        pull = self._pull(history, decay, network.early(history, 0.2, 30))
        dropped = _dropout(history)
        # Where there is no gradient to speak of, any decay is the stronger force, and the cause is another one.
        alive = decay >= self.alive * pull
        by_decay = decay > 0 and pull >= self.pull and alive and kept < 0.9
        by_decay |= worn or (bound <= self.shrunk and kept <= self.shrunk)
        by_penalty = kept <= self.shrunk and (alive or not decay)
        under_way = stand.learned(self.learned) and stand.recent.falls and not stand.finished
        by_dropout = dropped >= self.dropout and not under_way
        if not (by_decay or by_penalty or by_dropout):
            return
        start, _ = network.extent(history)
        if by_dropout and not (by_decay or by_penalty):
            sentence = f"Dropout of {dropped:.0%} leaves too little of the signal to learn from."
        else:
            sentence = (
                f"Regularisation drowns the signal: the weights have shrunk to {kept:.0%} of their size"
            )
            sentence += f" under weight decay {decay:g}" if decay else ""
            sentence += (
                f", which lets none stay above 1 / {decay:g} = {1 / decay:.2g}."
                if worn or bound <= self.shrunk
                else "."
            )
        yield Symptom(
            self.name,
            "error" if harmed else "warning",
            min(0.95, 0.65 + (0.15 if by_decay else 0.0) + (0.15 if kept < self.shrunk else 0.0)),
            start,
            "",
            {
                "weight_decay": decay,
                "decay_over_gradient": curves.rounded(pull),
                "weights_kept": curves.rounded(kept),
                "dropout": dropped or None,
                **stand.evidence(),
            },
            sentence,
        )

    def _bound(self, history: History, decay: float) -> float:
        """The largest size that weights can keep, over that at the start; infinite where it is not bounded.

        A step of Adam is about as long as its rate, and decay beside it takes its part of every weight: both come to
        the same where the weight is one over the decay.
        """
        apart = [one for one in _optimizers(history) if one.get("name") == "AdamW"]
        drawn = [weight.init_std for weight in _weights(history) if weight.init_std > 0]
        if not apart or len(apart) < len(_optimizers(history)) or not decay > 0 or not drawn:
            return math.inf
        return 1.0 / decay / float(np.median(drawn))

    def _in_balance(self, history: History, stand: Standing) -> Iterator[Symptom]:
        """Whether the loss came down and stays where decay holds the weights against the gradients of all data.

        Gradients that are no more than decay cancels out point the same way in every batch: there is something to
        learn. By how much the loss would fall if the weights grew is, to first order, the decay times their squares.
        """
        decay = max(
            (float(o.get("weight_decay") or 0.0) for o in _optimizers(history) if o.get("name") in _COUPLED),
            default=0.0,
        )
        falls = stand.recent.falls and stand.recent.change < -0.1 * stand.last
        if not decay > 0 or stand.adversarial or falls or stand.over < 0.5:
            return
        checked = curves.median(validation_loss(history).values[-2:])
        if not stand.remaining_loss >= self.remaining_in_balance or checked > 1.5 * stand.last:
            return  # learnt well enough, or by heart
        pull = self._pull(history, decay, network.recent(history, 0.3, 15))
        sizes = [
            history.series("weight_l2", weight.name).finite().values for weight in network.weights(history)
        ]
        worth = decay * sum(curves.median(size[-3:]) ** 2 for size in sizes if len(size)) / stand.last
        if not pull >= self.balance or not worth >= self.worth:
            return
        yield Symptom(
            self.name,
            "warning",
            0.8,
            network.recent(history, 0.5).start,
            "",
            {
                "weight_decay": decay,
                "decay_over_gradient": curves.rounded(pull),
                "gain_by_growth_over_loss": curves.rounded(worth),
                **stand.evidence(),
            },
            f"Weight decay {decay:g} holds the weights back: it cancels the gradients, and the loss stays at "
            f"{stand.remaining_loss:.0%} of a constant prediction's.",
        )

    def _collapsed(self, history: History, stand: Standing) -> Iterator[Symptom]:
        """Whether latent values are drawn as the prior has them, whatever is put in, and nothing is reconstructed.

        Their deviations, an exponential, are near 1 in any network before it has learnt anything. Where they came
        nearer to that, something pulled them there.
        """
        window = network.recent(history, 0.3, 15)
        left = self._not_reconstructed(history, stand)
        kinds = history.facts.get("activations")
        if stand.over < 0.5 or not left >= self.not_reconstructed or not isinstance(kinds, dict):
            return
        for site in network.sites(history, "act_std", "exp", "softplus"):
            mean, spread = (network.typical(history, name, site, window) for name in ("act_mean", "act_std"))
            first = history.series("act_std", site).finite().values[:1]
            pulled = len(first) and spread <= 0.5 * float(first[0])
            near = abs(mean - 1.0) <= self.of_the_prior and spread <= self.of_the_prior
            if kinds.get(site) not in ("Exp", "Softplus") or not pulled or not near:
                continue
            yield Symptom(
                self.name,
                "error",
                0.9,
                network.extent(history)[0],
                "",
                {
                    "deviation_of_latent_values": curves.rounded(mean),
                    "its_spread": curves.rounded(spread),
                    "reconstruction_over_constant": curves.rounded(left),
                },
                "The code of the autoencoder has collapsed: its values are drawn with a deviation of 1 whatever is put "
                f"in, as the prior has them, and {left:.0%} of a constant prediction's loss is left. The pull to the "
                "prior (the KL term) outweighs the reconstruction.",
                _LESS_PULL,
            )
            return

    def _not_reconstructed(self, history: History, stand: Standing) -> float:
        """The share of a constant prediction's loss that the reconstruction leaves, as far as its scale is known."""
        held_out = validation_loss(history).values[-2:]
        if len(held_out):
            return float(np.median(held_out)) / stand.baseline
        return stand.remaining_loss if history.series("loss_over_call") else math.nan

    def _pull(self, history: History, decay: float, window: network.Window) -> float:
        """Weight decay times weight over gradient: above 1 the penalty is the stronger force."""
        found = []
        for weight in _weights(history):
            relative = network.relative_gradient(history, weight.name, window=window)
            if math.isfinite(relative):
                found.append(decay / max(relative, 1e-30))
        return float(np.median(found)) if found else math.nan

    def _kept(self, history: History) -> float:
        """The size of the weights now over that at the start."""
        found = []
        for weight in _weights(history):
            norm = history.series("weight_l2", weight.name).finite()
            if len(norm) >= 3 and norm.values[0] > 0:
                # Looks lie ever farther apart: of three, the first may be from long before.
                late = norm.values[-3:][norm.steps[-3:] >= norm.steps[-1] / 2]
                found.append(curves.median(late) / float(norm.values[0]))
        return float(np.median(found)) if found else math.nan


def _weights(history: History) -> list[network.Weight]:
    """The matrices that learn; of a model made of nothing but tables, those."""
    return network.weights(history) or network.tables(history)


def _optimizers(history: History) -> list[dict[str, Any]]:
    found = history.facts.get("optimizers") or []
    return [entry for entry in found if isinstance(entry, dict)]


def _dropout(history: History) -> float:
    """The largest share that a layer, or a function that a layer calls, drops."""
    shares = [0.0]
    for name in ("dropout", "dropout_called"):
        found = history.facts.get(name)
        values = found.values() if isinstance(found, dict) else (found,)
        shares += [float(value) for value in values if isinstance(value, (int, float))]
    return max(shares)
