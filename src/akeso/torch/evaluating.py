"""When a script evaluates, what it evaluates on, and what comes of it."""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from akeso.torch import inputs
from akeso.torch.activations import thin
from akeso.torch.batch import BatchReader
from akeso.torch.cadence import Cadence
from akeso.torch.evaluation import Outcome, Phase
from akeso.torch.events import Figures
from akeso.torch.mailbox import Delivery, Mailbox
from akeso.torch.naming import DROPOUTS, NORMS, unwrap
from akeso.torch.passes import Passes
from akeso.torch.quiet import quiet
from akeso.torch.record import Record

#: Batches of a phase whose samples are compared with those seen in training.
_COMPARED = 4
#: Phases that are followed whatever they cost, at the start and per step: an epoch is longer than this.
_USUAL, _PER_STEP = 16, 0.1
#: The same for those who are frugal.
_FIRST = 3
#: Answers of a model of which something should have been made by then.
_ANSWERS = 32
#: After so many phases in a row without any such thing, four answers will do.
_BARREN = 3
#: Phases in a row that were listened to beyond their block for nothing, after which no other is.
_IN_VAIN = 4
#: Share of the budget for the others.
_SHARE = 0.3


class Evaluations:
    """Follows the evaluation phases of a script from their opening to their readings."""

    def __init__(
        self, record: Record, mailbox: Mailbox, batches: BatchReader, cadence: Cadence, frugal: bool = False
    ) -> None:
        self._record, self._mailbox, self._batches, self._cadence = record, mailbox, batches, cadence
        self._phases = Counter[bool]()  # by whether the model that is trained was switched for them
        self._frugal = frugal
        self._barren = 0  # phases in a row that nothing was made of
        self._in_vain = 0  # and of those that were listened to beyond their block
        self.spent = 0.0  # seconds that following them has taken
        self._familiar = inputs.Familiar()
        self._phase: Phase | None = None
        self._off = 0  # how deep inside no_grad the script is
        self.passes: Passes | None = None  # set once the passes know us
        self.trained: Callable[[nn.Module], bool] = lambda module: True  # set once the members are known
        self._loader: weakref.ref[Any] | None = None

    def learn(self, marks: list[float]) -> None:
        """These samples were trained on."""
        self._familiar.learn(marks)

    def begin_anew(self) -> None:
        """Another training begins, with data of its own."""
        self._familiar.forget()

    @property
    def loader(self) -> Any:
        """The data loader that began a pass last, as long as the script keeps it.

        One that nobody else holds must go at once: its workers would be waited for at the end of the process.
        """
        return self._loader() if self._loader is not None else None

    @loader.setter
    def loader(self, loader: Any) -> None:
        self._loader = weakref.ref(loader)

    @property
    def running(self) -> bool:
        """Whether a phase is open."""
        return self._phase is not None

    @property
    def inside(self) -> bool:
        """Whether the script is inside ``no_grad`` right now."""
        return self._off > 0

    def gradients_off(self, step: int) -> None:
        """The script has entered ``no_grad``: what follows may be an evaluation."""
        self._off += 1
        self.open(step)

    def gradients_on(self, *, wanted: bool) -> bool:
        """The script has left it; ``True`` when nothing more is to be seen of the phase.

        Many compute their loss and accuracy afterwards, from answers that were given inside. Where no model was put
        into evaluation mode, what was inside may as well belong to the training: the next pass with gradients tells,
        and if the readings of that are ``wanted``, it comes first.
        """
        self._off = max(self._off - 1, 0)
        phase = self._phase
        if self._off > 0:
            return False
        if phase is None or phase.over or not phase.unscored:
            return True
        if phase.announced:
            return False
        phase.dismissed = True
        phase.beyond = not (wanted or self._frugal or self._in_vain >= _IN_VAIN)
        return not phase.beyond

    def open(self, step: int, *, announced: bool = False, own: bool = False) -> None:
        """A phase begins, after ``step`` finished steps; ``announced`` by a switch to evaluation mode.

        It is the script's ``own`` where what is switched is being trained.
        """
        if self._phase is None:
            if self._too_often(step, own):
                return
            self._phases[own] += 1
            self._phase = Phase(max(step - 1, 0), self._batches.ignored)
        self._phase.announced |= announced
        if self._fruitless:
            if self.passes is not None and self.passes.open:
                self.passes.end()
            return
        if self.passes is not None and (not self.passes.open or self.passes.reading):
            self.passes.begin(reading=False)

    @property
    def _fruitless(self) -> bool:
        """Whether a phase that nobody announced has had many answers and made nothing of them: a rollout, say."""
        phase = self._phase
        if phase is None or phase.announced:
            return False
        if sum(group.batches for group in phase.groups) < _ANSWERS >> self._barren:
            return False
        return not any(group.scored_at_all or group.tallied for group in phase.groups)

    def _too_often(self, step: int, own: bool) -> bool:
        """Whether passes without gradients belong to training, as with targets and rollouts, and cost too much.

        Those for which the trained model is switched to evaluation are counted apart: a teacher that answers in every
        step does not keep them from being seen. Who is frugal is told by other means how each evaluation went, and
        follows those that can be afforded.
        """
        usual = _FIRST if self._frugal else max(_USUAL, step * _PER_STEP)
        return (
            self._phases[own] > usual and self.spent > _SHARE * self._cadence.budget * self._cadence.elapsed
        )

    def dismiss(self) -> None:
        """A model was put back into training mode inside ``no_grad``: the next pass with gradients is training."""
        if self._phase is not None:
            self._phase.dismissed = True

    def forget(self) -> None:
        """An optimizer steps: where no model has answered, gradients were switched off for that alone."""
        if self._phase is not None and not self._phase.groups and not self._phase.announced:
            self._phase = None
            self._phases[False] -= 1

    def end(self, *, by_backward: bool) -> None:
        """The phase is over: training goes on, or the run ends."""
        fruitless, phase, self._phase = self._fruitless, self._phase, None
        self._off = 0
        if phase is None:
            return
        # After one rollout the next is known for what it is the sooner.
        self._barren = min(self._barren + 1, _BARREN) if fruitless else 0
        if phase.beyond:
            self._in_vain = 0 if any(group.scored_at_all for group in phase.groups) else self._in_vain + 1
        batches = Counter[tuple[int, bool]]()
        for group in phase.groups:
            batches[group.loader, group.gradients] += group.batches
        # A single pass with gradients that is followed by backward was training in evaluation mode; so were all of
        # them where nothing but a copy, a teacher say, has answered without any.
        taught = all(group.copy or group.gradients for group in phase.groups) and any(
            group.copy for group in phase.groups
        )
        phase.groups = [
            group
            for group in phase.groups
            if not (by_backward and group.gradients and (taught or batches[group.loader, True] == 1))
        ]
        if phase.by_distance:
            self._record.fact("validated_by", "distance")
        with quiet():
            phase.close(
                self._mailbox,
                self._known,
                lambda outcome: self._ended(phase.step, outcome),
                self._batches.only_loss,
            )

    def _known(self, marks: list[float]) -> tuple[int, bool]:
        seen = self._familiar.count(marks)
        return seen, _is_familiar(seen, len(marks))

    def _ended(self, step: int, found: Outcome) -> None:
        familiar, loss, accuracy = found.familiar, found.loss, found.accuracy
        self._record.event(
            step, "evaluation", "training-data" if familiar else "",
            samples=found.samples, batches=found.batches, loss=loss, accuracy=accuracy,
            seen=found.known / found.looked_at if found.looked_at else 0.0,
            training_mode=found.training_mode, grad=found.gradients, copy=0 < found.batches == found.copies,
        )  # fmt: skip
        prefix = "train_eval_" if familiar else "val_"
        if not familiar and (loss is not None or accuracy is not None):
            self._record.fact("val_size", found.samples)
        values = {}
        if loss is not None:
            values[f"{prefix}loss"] = {"": loss}
            if not familiar:
                scale = self._batches.scale_of(found.kind, found.target_spread)
                self._record.fact("val_scale", float(f"{scale:.3g}"))
        if accuracy is not None:
            values[f"{prefix}accuracy"] = {"": accuracy}
        self._record.readings(step, values)

    def reported(self, step: int, figures: Figures) -> None:
        """Somebody else has evaluated the model, and says what came of it."""
        found = inputs.marks_of(figures.inputs) if figures.inputs is not None else None
        marks = [] if found is None else found.tolist()
        seen, familiar = self._known(marks)
        outcome = Outcome(familiar, seen, len(marks), figures.batches, figures.samples)
        outcome.take(figures.loss, figures.accuracy)
        self._ended(step, outcome)

    def output(self, module: nn.Module, tensor: torch.Tensor, given: torch.Tensor | None) -> None:
        """A model has run to its end."""
        phase = self._phase
        if phase is None or phase.over:
            return
        if phase.dismissed and tensor.requires_grad:
            phase.over = True
            if self.passes is not None and not (phase.announced or self.passes.reading):
                self.passes.end()
            return
        if not phase.groups and given is not None and not self._frugal:
            self._fed(module, given, phase.step)
        rows = len(given) if given is not None and given.dim() else len(tensor) if tensor.dim() else 1
        loader = id(self.loader) if self.loader is not None else 0
        compared = sum(group.batches for group in phase.groups) < _COMPARED
        marks = inputs.marks_of(given) if given is not None and compared else None
        training = module.training and _minds(module)
        phase.output(tensor, loader, rows, training, marks, copy=not self.trained(unwrap(module)))
        if self.passes is not None and self.passes.open and not self.passes.reading and self._fruitless:
            self.passes.end()  # one block without gradients may hold a whole rollout

    def _fed(self, module: nn.Module, given: torch.Tensor, step: int) -> None:
        """Read the scale of what a model is evaluated on, where it is the one that is trained and given the like."""
        if self._batches.fed != (type(unwrap(module)), given.shape[1:]) or not given.is_floating_point():
            return
        if given.numel() < 2:
            return
        var, mean = torch.var_mean(thin(given.detach(), 1 << 14).float(), correction=0)

        def receive(delivery: Delivery) -> None:
            spread = math.sqrt(max(delivery["var"], 0.0))
            self._record.readings(
                step, {"val_input_mean": {"": delivery["mean"]}, "val_input_std": {"": spread}}
            )

        self._mailbox.post([("mean", mean), ("var", var)], receive)

    def given(self, loss: torch.Tensor) -> None:
        """A model has given a loss beside its answers, as it does in training."""
        if self._phase is not None and not self._phase.over:
            self._phase.given(loss, self._batches.kind)

    def function(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """The script has called a torch function outside of any model."""
        if self._phase is None or self._phase.over or self.passes is None:
            return
        if self.passes.calls:
            call = self.passes.calls.pop()
            if isinstance(result, torch.Tensor) and result.requires_grad and self._phase.without_gradients:
                return  # what is trained on, computed while a teacher answers
            node = result.grad_fn if isinstance(result, torch.Tensor) else None
            self._phase.loss(call, self._batches.target_kind, node)
        else:
            self._phase.called(name, args, result)


def _minds(module: nn.Module) -> bool:
    """Whether anything in a model in training mode makes a difference to that mode."""
    return any(part.training for part in module.modules() if isinstance(part, (*NORMS[:1], *DROPOUTS)))


def _is_familiar(seen: int, of: int) -> bool:
    """Whether so many known samples can only mean that the script evaluates on its training data."""
    return seen > 2 and seen > 0.05 * of
