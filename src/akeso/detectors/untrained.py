"""Parameters that are meant to learn and do not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from akeso.advice import advice
from akeso.detectors import cut, network
from akeso.detectors._base import Detector
from akeso.detectors.coarse import rounded_away
from akeso.detectors.copies import same_answers, stale_copy
from akeso.detectors.drawn import all_fresh, as_drawn, fresh
from akeso.detectors.standing import Standing, standing, validation_loss
from akeso.diagnosis import Severity, Symptom
from akeso.history import Event, History


@dataclass(frozen=True)
class ParametersNotTrained(Detector):
    """Parameters that are meant to learn do not change although others do."""

    name: ClassVar[str] = "parameters-not-trained"
    min_steps: int = 5
    remaining: float = 0.4
    gradient: float = 1e-6
    looks: int = 4
    dead: float = 0.9
    most: float = 0.5
    still: float = 1e-6
    evaluations: int = 4
    almost: float = 0.9
    learnt: float = 0.5
    answers_learnt: float = 0.7
    unmoved: float = 0.1
    frozen_steps: int = 200

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        if stand.steps < self.min_steps:
            yield from same_answers(history, stand, self.name)
            return
        idle = history.facts.get("never_stepped")
        if isinstance(idle, str):
            yield Symptom(
                self.name,
                "error",
                0.97,
                network.extent(history)[0],
                "",
                {"optimizer": idle, "backward_passes": stand.steps},
                f"{idle} has never stepped: after {stand.steps} backward passes all parameters are what they were.",
                ("Call `optimizer.step()` after `loss.backward()`, in every step.",),
            )
            return
        for event in history.events_of("severed"):
            yield Symptom(
                self.name,
                "error",
                0.93,
                event.step,
                "",
                {"reason": "severed", **stand.evidence()},
                "A part of the loss holds derivatives that `torch.autograd.grad` gave without `create_graph=True`: it "
                "has no gradient, so that nothing is learnt from it.",
                (
                    "Say `create_graph=True` where a derivative goes into the loss; `retain_graph=True` is not enough.",
                ),
            )
            return
        if history.facts.get("derivatives_flat"):
            yield self._flat(history, stand)
            return
        groups: dict[str, list[Event]] = {}
        for event in history.events_of("detached"):
            groups.setdefault(str(event.data.get("reason", "no-grad")), []).append(event)
        suffers = stand.suffers(self.remaining)
        for reason, events in groups.items():
            names = [event.scope for event in events]
            used = [name for name in names if reason != "unused" and network.is_used(history, name)]
            in_vain = self._in_vain(history, stand, [event for event in events if event.scope in used])
            severity: Severity = "info"
            if used and suffers:
                severity = "error"
            elif (
                in_vain
                or reason in ("unregistered", "made-anew")
                or (reason == "not-in-optimizer" and as_drawn(history, used))
                or any(
                    fresh(history, name)
                    and not (
                        reason == "no-grad"
                        and (cut.at_the_end(history, name, names) or _last_of_alike(history, name, names))
                    )
                    for name in used
                )
            ):
                severity = "warning"
            shown = (used if severity == "error" else in_vain or used) or names
            # A backward pass led somewhere: that nothing at all has a gradient in the step is done in between.
            cleared = reason == "no-grad" and bool(used) and not history.scopes("grad_l2")
            yield Symptom(
                self.name,
                severity,
                {"no-grad": 0.93, "not-in-optimizer": 0.88, "unregistered": 0.95, "made-anew": 0.95}.get(
                    reason, 0.6
                )
                if used
                else 0.6,
                min(event.step for event in events),
                shown[0].rpartition(".")[0] or shown[0],
                {"reason": reason, "parameters": shown[:8], "count": len(shown), **stand.evidence()},
                _sentence(
                    "cleared" if cleared else "in-vain" if shown == in_vain else reason if used else "unused",
                    shown,
                ),
                ("Make the layer once, in `__init__`, and keep it as an attribute of the model.",)
                if reason == "made-anew"
                else (_CLEAR_FIRST, *advice(self.name))
                if cleared
                else (),
            )
        left_behind = list(self._left_behind(history, stand))
        yield from left_behind or same_answers(history, stand, self.name)
        yield from stale_copy(history, stand, self.name)
        if not groups:
            found = [*self._elsewhere(history), *self._still(history, suffers)]
            found = found or [*rounded_away(history, stand, self.name)]
            found += cut.cut_off(history, stand, self.name, suffers=suffers, looks=self.looks, dead=self.dead)
            harmed = suffers and stand.steps >= self.frozen_steps
            yield from found or self._frozen_as_drawn(history, harmed)

    def _flat(self, history: History, stand: Standing) -> Symptom:
        return Symptom(
            self.name,
            "error",
            0.9,
            network.extent(history)[0],
            "",
            {"reason": "derivatives-flat", **stand.evidence()},
            "The derivative of a derivative of the model by its inputs is exactly 0 everywhere, in every step that was "
            "looked at: its activations are made of straight pieces, as ReLU is, so that nothing is learnt from it.",
            (
                "Use smooth activations where second derivatives are wanted: `Tanh`, `SiLU`, `GELU`, `Softplus`, "
                "sines.",
            ),
        )

    def _in_vain(self, history: History, stand: Standing, events: list[Event]) -> list[str]:
        """Parameters whose optimizer steps and steps, and has none that ever gets a gradient or changes.

        Beside others that learn, one without a gradient may be frozen in effect or wait for its turn. Nobody makes an
        optimizer for nothing but that, and lets it step most of the run.
        """
        names = [event.scope for event in events if event.data.get("optimizer_in_vain")]
        if stand.over < self.most or any(history.series("grad_l2", name).finite() for name in names):
            return []
        sizes = [history.series("weight_l2", name).finite().values for name in names]
        still = all(
            len(seen) >= self.looks and float(np.ptp(seen)) <= self.still * seen.max() for seen in sizes
        )
        return names if still else []

    def _left_behind(self, history: History, stand: Standing) -> Iterator[Symptom]:
        """Evaluations that never got better than guessing, nor moved at all, while the training learnt.

        A model that learns samples by heart answers others differently every time. One that does not follow the
        training, as an average of weights that looks back over more steps than the run has, answers the same.
        """
        correct = history.series("val_accuracy").finite()
        size = history.facts.get("val_size")
        if len(np.unique(correct.steps)) < self.evaluations or not isinstance(size, int) or not size > 0:
            return
        if not stand.share >= self.almost or not stand.learned(self.learnt):
            return
        if not stand.remaining_error < self.answers_learnt:
            return
        luck = math.sqrt(stand.chance * (1.0 - stand.chance) / size)
        start, end = network.extent(history)
        late = correct.steps[0] > start + 0.5 * (end - start)
        if late or correct.values.max() > stand.chance + 3.0 * luck or np.ptp(correct.values) > luck:
            return
        evaluations = [event for event in history.events_of("evaluation") if event.scope != "training-data"]
        copy = bool(evaluations) and all(event.data.get("copy") for event in evaluations)
        lost = validation_loss(history).values
        if len(lost) and not (copy and np.ptp(lost) <= self.unmoved * stand.baseline):
            return  # what a loss says of labels and of memory is told elsewhere
        yield Symptom(
            self.name,
            "error" if copy else "warning",
            0.85 if copy else 0.7,
            int(correct.steps[0]),
            "",
            {
                "reason": "left-behind",
                "val_accuracy_best": round(float(correct.values.max()), 4),
                "evaluations": len(correct),
                **stand.evidence(),
            },
            (
                "What is evaluated is another model than the one that is trained, and hardly follows it: "
                if copy
                else "What is evaluated does not follow the training: "
            )
            + f"its accuracy stayed at {correct.values.max():.1%}, no better than guessing, in {len(correct)} "
            f"evaluations, while the training loss came down to {stand.last:.3g}.",
            _FOLLOW if copy else _SAME_FOR_BOTH,
        )

    def _frozen_as_drawn(self, history: History, harmed: bool) -> Iterator[Symptom]:
        """Weights that are frozen and look as torch draws them: nothing was trained or loaded before.

        A remark where the rest of the model does well with what they happen to make of the inputs.
        """
        frozen = frozen_as_drawn(history)
        if not frozen:
            return
        yield Symptom(
            self.name,
            "warning" if harmed else "info",
            0.7,
            network.extent(history)[0],
            frozen[0].rpartition(".")[0],
            {"parameters": frozen[:8], "count": len(frozen)},
            f"{frozen[0]} and {len(frozen) - 1} more are frozen and look as they were drawn: nothing seems to have "
            "been loaded into them or trained before.",
            (
                "Load the weights before freezing them, or set `requires_grad` (`trainable` in Keras) to True again.",
            ),
        )

    def _elsewhere(self, history: History) -> Iterator[Symptom]:
        """An optimizer that was given something else than what the loss is computed from: nothing gets a gradient."""
        given = history.scopes("update_ratio")
        changes = [history.series("update_ratio", name).values for name in given]
        seen = any(history.series("grad_l2", name) for name in given)
        if not given or seen or any(len(values) < self.looks - 1 or values.any() for values in changes):
            return
        start, _ = network.extent(history)
        yield Symptom(
            self.name,
            "error",
            0.9,
            start,
            given[0].rpartition(".")[0] or given[0],
            {"parameters": given[:8], "count": len(given)},
            "What the optimizer was given never gets a gradient and never changes: the loss is computed from "
            "something else.",
            (
                "Give the optimizer the very tensors that the loss is computed from: `.detach()`, `.clone()`, `.to()` "
                "and loading a model anew make others.",
            ),
        )

    def _still(self, history: History, suffers: bool) -> Iterator[Symptom]:
        """Parameters that have gradients but are never moved."""
        start, end = network.extent(history)
        window = network.Window(start, end)
        moved = {
            weight.name: network.updates_of(history, weight.name, window)
            for weight in network.weights(history)
        }
        still = [name for name, values in moved.items() if len(values) >= 5 and not values.any()]
        moving = [name for name, values in moved.items() if len(values) >= 5 and values.any()]
        if not still or not suffers or (moving and len(still) * 10 < len(moved)):
            return
        if not all(network.relative_gradient(history, name, window=window) > self.gradient for name in still):
            return  # no gradient to speak of: dead or vanished, which others report
        yield Symptom(
            self.name,
            "error",
            0.9,
            start,
            still[0].rpartition(".")[0],
            {"parameters": still[:8], "count": len(still)},
            f"{still[0]} gets gradients but is never changed ({len(still)} of {len(moved)} weight matrices).",
        )


def _last_of_alike(history: History, name: str, silent: list[str]) -> bool:
    """Whether a parameter without gradients sits in the last of several blocks, and its like in the others learn.

    What a block hands on to the next one is not wanted of the last; the rest of it must learn.
    """
    pieces = name.split(".")
    learning = {one.name for one in history.parameters if one.trainable and one.name not in silent}
    for place, piece in enumerate(pieces):
        if not piece.isdigit():
            continue
        block, rest = ".".join(pieces[:place]), pieces[place + 1 :]
        alike = [".".join([*pieces[:place], str(index), *rest]) for index in range(int(piece))]
        beyond = ".".join([*pieces[:place], str(int(piece) + 1)])
        itself = f"{block}.{piece}." if block else f"{piece}."
        last = not any(one.name.startswith(f"{beyond}.") for one in history.parameters)
        if rest and last and alike and all(one in learning for one in alike):
            return any(one.startswith(itself) for one in learning)
    return False


#: What helps where a copy is evaluated that does not follow, and where nothing is known of what is evaluated.
_FOLLOW: Final = (
    "Lower the decay of an average of weights: it looks back over 1 / (1 - decay) steps, which must be few in the run.",
    "Bring a copy up to date after every step, from the very model that the optimizer trains.",
    "Evaluate the model that is trained as well.",
)
_SAME_FOR_BOTH: Final = (
    "See whether the evaluated model is the one that is trained, or a copy from the beginning.",
    "Prepare inputs and number the classes for evaluation exactly as for training.",
)

_CLEAR_FIRST: Final = "Call `zero_grad` before `backward` or after the step, not between the two."
#: By reason, of one parameter and of several.
_REASONS = {
    "no-grad": (
        "should learn but never gets a gradient: it is cut off from the loss.",
        "should learn but never get a gradient: they are cut off from the loss.",
    ),
    "cleared": (
        "has no gradient in any step, nor has anything else: it is cleared between `backward` and the step, or what "
        "`backward` starts from leads elsewhere.",
        "have no gradient in any step, nor has anything else: it is cleared between `backward` and the step, or what "
        "`backward` starts from leads elsewhere.",
    ),
    "in-vain": (
        "never gets a gradient in the whole run: it is cut off from the loss, and its optimizer trains nothing else.",
        "never get a gradient in the whole run: they are cut off from the loss, and their optimizer trains nothing "
        "else.",
    ),
    "not-in-optimizer": (
        "gets gradients but is in no optimizer that steps, so it never changes.",
        "get gradients but are in no optimizer that steps, so they never change.",
    ),
    "unregistered": (
        "is used but is in no optimizer: its module is kept in a plain list or dict, where the model does not see it.",
        "are used but are in no optimizer: their modules are kept in a plain list or dict, where the model does "
        "not see them.",
    ),
    "made-anew": (
        "is made anew in every pass: it holds other random numbers each time and never learns.",
        "are made anew in every pass: they hold other random numbers each time and never learn.",
    ),
    "unused": (
        "is not used in any pass that is trained on.",
        "are not used in any pass that is trained on.",
    ),
}


def frozen_as_drawn(history: History) -> list[str]:
    """Weights that are frozen and look as they were drawn, where nothing can have been trained or loaded before."""
    frozen = [
        one.name
        for one in history.parameters
        if not one.trainable and len(one.shape) >= 2 and not history.series("grad_l2", one.name)
    ]
    frozen = [name for name in frozen if network.is_used(history, name)]
    # What was trained in a stage before, or belongs to a copy that is brought up to date, is left alone.
    stages = history.facts.get("earlier_stages") or len(history.facts.get("optimizers") or ()) > 1
    if len(history.facts.get("models") or ()) > 1:
        trained = {one.name.partition(".")[0] for one in history.parameters if one.trainable}
        frozen = [name for name in frozen if name.partition(".")[0] in trained]
    written = history.facts.get("frozen_written")
    plain = stages or written or len(frozen) < 2 or not all_fresh(history, frozen)
    return [] if plain else frozen


def _sentence(reason: str, names: list[str]) -> str:
    one, several = _REASONS[reason]
    return f"{names[0]} and {len(names) - 1} more {several}" if len(names) > 1 else f"{names[0]} {one}"
