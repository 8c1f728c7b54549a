"""The probe: follows a training loop through the taps and turns what it sees into readings.

What it expects of a loop, in the order in which it happens::

    forward of one or more models        sampled steps: sites, inputs, loss calls are read   (passes)
    loss.backward()                      every step: the loss; sampled: task, batch          (before_backward)
    optimizer.step()                     sampled: gradients, weights, update                 (before_step, after_step)
    or changes by the script itself      the same, from here to the next forward             (after_backward, _moved_on)
    with no_grad(): model(…)             evaluation phases, from here to the next backward   (gradients_off …)

Any of it may be missing, repeated or interleaved with that of other models.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, SupportsFloat

import torch
from torch import nn

from akeso.diagnosis import Diagnosis
from akeso.history import History
from akeso.journal import JournalWriter
from akeso.torch.activations import Sites, first_tensor
from akeso.torch.alarms import Alarms
from akeso.torch.batch import BatchReader
from akeso.torch.cadence import Cadence
from akeso.torch.evaluating import Evaluations
from akeso.torch.idle import Idle
from akeso.torch.keras.losses import call_of
from akeso.torch.live import LiveVerdict
from akeso.torch.loose import LooseEnds
from akeso.torch.lossbook import LossBook
from akeso.torch.mailbox import Mailbox, device_failed
from akeso.torch.members import Members
from akeso.torch.naming import Names
from akeso.torch.nonfinite import reaches
from akeso.torch.pace import Pace
from akeso.torch.passes import Passes
from akeso.torch.quiet import quiet
from akeso.torch.record import Record
from akeso.torch.sampled import SampledStep
from akeso.torch.told import Told
from akeso.torch.unaided import Unaided

#: What it costs torch to call a hook or a mode at all, beside what those do with their time: as measured.
_MODULE_CALL, _FUNCTION_CALL = 4.0e-6, 8.0e-6
#: Backward passes without any optimizer step after which each of them is taken for a step.
_BARE = 128


class Probe(Told):
    """Hears the taps, fills a history."""

    def __init__(
        self,
        models: list[nn.Module],
        optimizers: list[torch.optim.Optimizer],
        *,
        adopt: bool,
        budget: float,
        profile: str | Path,
        planned_steps: int | None,
        statistics: bool,
        journal: JournalWriter | None,
        on_finding: Callable[[Diagnosis], None] | None,
        eager: bool,
        frugal: bool,
        say: Callable[[str], None],
    ) -> None:
        self.history = History(planned_steps=planned_steps)
        self.cadence = Cadence(budget, frugal=frugal)
        self.step = 0
        self._names = Names()
        self._adopt = adopt
        self._say = say
        self._record = Record(self.history, journal)
        self._mailbox = Mailbox()
        self._sites = Sites()
        self._batches = BatchReader(self._record, self._names)
        self._evaluations = Evaluations(self._record, self._mailbox, self._batches, self.cadence, frugal)
        self._alarms = Alarms(self._record, self._names, self._alarmed)
        self._book = LossBook(self._record, self._mailbox, self.cadence, self._alarms.loss)
        self._passes = Passes(
            self._names,
            self._sites,
            adopt=adopt,
            on_output=self._evaluations.output,
            on_loss=self._evaluations.given,
            on_function=self._evaluations.function,
            on_error=self.failed,
        )
        self._evaluations.passes = self._passes
        if frugal:
            self._passes.dependence.never()
        self._look = SampledStep(
            self._record,
            self._mailbox,
            self._names,
            self._sites,
            self._batches,
            self._evaluations,
            self._alarms,
            statistics=statistics,
        )
        self._pace = Pace()
        self._loose = LooseEnds(self._record, self._names)
        self._idle = Idle(self._names)
        self._unaided = Unaided(self._names, self._moved_on)
        self._live = (
            LiveVerdict(self.history, profile, on_finding, self.cadence, eager, frugal)
            if on_finding
            else None
        )
        self._members = Members(
            self._record,
            self._mailbox,
            self._names,
            self._passes,
            self._sites,
            optimizers=optimizers,
            adopt=adopt,
        )
        self._evaluations.trained = self._members.trains
        self._greeted: set[int] = set()  # optimizers that have stepped
        self._stepped: set[int] = set()
        self._active: set[int] = set()
        self._losses: list[SupportsFloat | torch.Tensor] = []
        #: Losses that an optimizer of others has used up; ``None`` before there was one.
        self._others: list[SupportsFloat | torch.Tensor] | None = None
        self._gathered = 0  # losses before the step began
        self._trying: set[int] = (
            set()
        )  # optimizers that evaluate the loss several times in a step: the last one counts
        self._sampling = False
        self._read = False
        self._loader_news = False
        self._own = 0.0
        self._wake = 0  # the step at whose beginning a calm run is looked after
        self._said: set[str] = set()
        self._closed = False
        self._record.header(torch=torch.__version__, planned_steps=planned_steps)
        for model in models:
            self._names.expect(model)
        self._arm()

    # training ----------------------------------------------------------------------------------------

    def before_backward(self, loss: Any) -> None:
        """The loss of this step, or of a part of it."""
        if self.calm and loss.__class__ is torch.Tensor and not loss.dim():
            if not loss.is_cpu:
                self._losses.append(loss.detach())
                return
            number = loss.item()
            self._losses.append(number)
            if not math.isfinite(number):
                self._broken(number, loss)
            return
        began = time.perf_counter() if self._sampling else 0.0
        tensor = first_tensor(loss)
        if tensor is None:
            return
        if self._evaluations.running:
            self._end_evaluation(by_backward=True)
        if not self._losses:
            self._loose.first_backward()
        if not self._members:
            with quiet():
                self._idle.begin()
                self._members.weigh()
                self._stand_in()
        if self._loader_news:
            self._epoch()
        if self._look.scaled is not None and self._look.scaled[1] is tensor:
            tensor = self._look.scaled[0]
        value: float | torch.Tensor
        if tensor.device.type == "cpu" and tensor.numel() == 1:
            value = tensor.item()
            if not math.isfinite(value):
                self._broken(value, tensor)
        else:
            with quiet():
                value = tensor.detach() if tensor.dim() == 0 else tensor.detach().mean()
        self._losses.append(value)
        if len(self._losses) >= _BARE and not self._members:
            self._spread_losses()
        if self._sampling and not self._read and not self._beside():
            self._read = True
            self._passes.end()
            with quiet():
                self._passes.own_loss.trained_on(tensor)
                self._look.batch(self._passes, tensor, self.step)
            self._passes.let_go()
        if began:
            self._own += time.perf_counter() - began

    def _broken(self, value: float, loss: torch.Tensor) -> None:
        """A loss is not finite: one that leads to nothing of ours is a matter of the step that uses it up."""
        if self._adopt or reaches(loss, self._names.known):
            self._alarms.loss(value, self.step, loss)

    def _beside(self) -> bool:
        """Whether a backward pass belongs to another training in the same loop: nothing of ours has run before it."""
        if self._adopt or not self._passes.open or self._passes.ours:
            return False
        return self._others is not None or self.step == 0

    def after_backward(self) -> None:
        """The script changes its weights by itself from here on."""
        stand = self._unaided.stand
        if stand is None:
            return
        if not self.calm:
            self.before_step(stand, False)
            if self._sampling:
                # The gradients may be gone by the next forward.
                self._loose.after_sampled_step(0, stand, self.step)
        self._unaided.wait()

    def _moved_on(self, module: nn.Module, inputs: Any) -> None:
        """A model runs again: the script has changed its weights."""
        if self._passes.strange():
            return
        try:
            self._hand_step_over()
        except Exception as error:
            self.failed("forward", error)
        if self._passes.open:
            # Hooks that were put in place just now do not hear of this call.
            self._passes.enter(module, inputs)

    def _hand_step_over(self) -> None:
        if self._unaided.waiting:
            self._unaided.over()
            assert self._unaided.stand is not None
            self.after_step(self._unaided.stand, False)

    def _stand_in(self) -> None:
        """See whether the script changes its weights by itself; then count the steps that were."""
        stand = self._unaided.found()
        if stand is None or self._members.index(stand) is None:
            return
        self._record.fact("optimizers", [])
        for value in self._losses:
            self._book.put(self.step, 0, [value])
            self.step += 1
        self._losses = []
        self.follows = True

    def _make_way(self, optimizer: torch.optim.Optimizer) -> None:
        """There is an optimizer after all: nothing stands in its place any longer."""
        stand = self._unaided.stand
        if stand is None or optimizer is stand:
            return
        self._unaided.leave()  # the step under way is the optimizer's
        self._members.drop(stand)
        self.follows = self.calm = False
        self._active.clear()
        self._stepped.clear()

    def before_step(self, optimizer: torch.optim.Optimizer, closure: bool) -> None:
        """Gradients are as the optimizer will apply them."""
        self._make_way(optimizer)
        index = self._members.index(optimizer)
        if index is None:
            return
        began = time.perf_counter() if self._sampling else 0.0
        self._gathered = len(self._losses)
        self._passes.settle()
        if self._evaluations.running:
            self._evaluations.forget()
        if self._evaluations.running:
            self._end_evaluation(by_backward=False)  # gradients were made by other means
        if index in self._stepped:
            self._advance()
        self._greet(index)
        self._loose.before_step(index, closure=closure)
        if self._members.take(closure=closure):
            self._loose.optimized = self._members.optimized
            if self._members.compiled:
                self._forbid()
        if self._sampling:
            with quiet():
                self._look.before(optimizer, closure=closure)
        if began:
            self._own += time.perf_counter() - began

    def after_step(self, optimizer: torch.optim.Optimizer, closure: bool) -> None:
        """The step is done: finish its readings, count it, decide about the next."""
        if self.calm and self._members.indices.get(id(optimizer)) == 0:
            # Nearly all steps end here, and whatever is done is done with cold caches: it must be little.
            losses = self._losses or self._others
            if losses:
                self._book.put(self.step, 0, losses[-1:] if 0 in self._trying else losses)
                self._losses = []
                if self._others:
                    self._others = []
            self.step += 1
            if self.step >= self._wake:
                self._look_after()
            return
        self._make_way(optimizer)
        index = self._members.index(optimizer)
        if index is None:
            # What was learnt from is not this training's, unless nothing else follows: a loss may have been for both.
            self._others, self._losses = self._losses, []
            return
        self._greet(index)
        self.calm = False
        began = time.perf_counter() if self._sampling else 0.0
        # That a second optimizer takes turns with the first is known when it steps: that was the first turn of both.
        late = self.step == 1 and not self._stepped and index not in self._active
        if self._others:
            self._losses, self._others = self._losses or self._others, []
        if self._losses:
            if closure:
                self._loose.before_step(index)
            if closure and len(self._losses) > self._gathered + 1:
                self._trying.add(index)
            self._book.put(
                self.step - late, index, self._losses[-1:] if index in self._trying else self._losses
            )
            self._losses = []
        if self._sampling:
            if optimizer is not self._unaided.stand:
                self._loose.after_sampled_step(index, optimizer, self.step)
            with quiet():
                self._look.after(optimizer, index, self.step, closure=closure)
        if began:
            self._own += time.perf_counter() - began
        if late:
            self._active.add(index)
            return
        self._stepped.add(index)
        if self._stepped >= self._active:
            self._advance()

    def _greet(self, index: int) -> None:
        """Note when an optimizer steps for the first time, the first one's apart."""
        if index not in self._greeted:
            self._greeted.add(index)
            if index:
                self._record.event(self.step, "optimizer", str(index))
                self._evaluations.begin_anew()
                self.cadence.stir(self.step)

    # steps -------------------------------------------------------------------------------------------

    def _look_after(self) -> None:
        """Write down what calm steps have left, and see whether the next one is to be sampled."""
        now = time.perf_counter()
        self._book.flush(now, force=False)
        self._pace.plain(now, self.step)
        if self._live is not None:
            self._live.look(self.step)
        self._wake = self.cadence.earliest(self.step, self._pace.last)
        if self.cadence.due(self.step):
            self._arm()

    def _advance(self) -> None:
        """The step is over; everything after this belongs to the next one."""
        now = time.perf_counter()
        self._book.flush(now, force=self._sampling)
        if self._sampling:
            self._passes.end()
            self._count_cost(now)
            self.step += 1
            self._pace.restart(now, self.step)
        else:
            self.step += 1
            self._pace.plain(now, self.step)
        self._active, self._stepped = self._stepped, set()
        if self._live is not None:
            self._live.look(self.step)
        self._arm()

    def _spread_losses(self) -> None:
        """No optimizer has ever stepped: the script updates its weights by itself, once per backward pass."""
        self._record.fact("optimizers", [])
        self._idle.look()
        for value in self._losses:
            self._book.put(self.step, 0, [value])
            self.step += 1
        self._losses = []
        self._book.flush(time.perf_counter(), force=True)

    def _count_cost(self, now: float) -> None:
        cost = self._own + self._hook_cost()
        if torch.cuda.is_initialized():
            cost = self._pace.look_cost(now, cost)
        self.cadence.sampled(self.step, cost)
        self._record.readings(self.step, {"step_seconds": {"": self._pace.elapsed(now)}})
        self._own = 0.0

    def _hook_cost(self) -> float:
        passes = self._passes
        cost = passes.seconds + passes.module_calls * _MODULE_CALL + passes.function_calls * _FUNCTION_CALL
        passes.seconds, passes.module_calls, passes.function_calls = 0.0, 0, 0
        return cost

    def _arm(self) -> None:
        """Decide whether the step that begins now is sampled."""
        self._sampling = self.cadence.due(self.step)
        self._read = False
        if self._sampling:
            self._own = 0.0
            self._passes.begin(reading=True)
        elif self._passes.open and not self._evaluations.inside:
            self._passes.end()
        self.calm = (
            not self._sampling
            and self._active == {0}
            and not (self._evaluations.running or self._loader_news or self._loose.waiting)
        )
        self._wake = self.cadence.earliest(self.step)

    # evaluation --------------------------------------------------------------------------------------

    def gradients_off(self) -> None:
        """The script has entered ``no_grad``."""
        self.calm = False
        self._pace.disturbed = True
        self._evaluations.gradients_off(self.step)

    def gradients_on(self) -> None:
        """The script has left it; the phase stays open until training goes on."""
        if self._evaluations.gradients_on(wanted=self._sampling and not self._read):
            self._resume()

    def mode_set(self, module: nn.Module, training: bool) -> None:
        """A model was switched to training or evaluation."""
        if self._names.module(module) is None and not self._adopt:
            return
        self._hand_step_over()
        if not training:
            self.calm = False
            self._pace.disturbed = True
            self._evaluations.open(self.step, announced=True, own=self._members.trains(module))
        elif self._evaluations.inside:
            self._evaluations.dismiss()
        elif self._evaluations.running:
            self._end_evaluation(by_backward=False)
            self._resume()

    def _resume(self) -> None:
        """See the training again as far as it is to be seen."""
        if self._sampling and not self._read:
            self._passes.begin(reading=True)
        else:
            self._passes.end()

    def _end_evaluation(self, *, by_backward: bool) -> None:
        cost = self._hook_cost()
        self.cadence.spend(cost)
        self._evaluations.spent += cost
        self._evaluations.end(by_backward=by_backward)

    # odds and ends -----------------------------------------------------------------------------------

    def loss_scaled(self, loss: Any, scaled: Any, scaler: Any) -> None:
        """Remember what was scaled: the loss is what it was before."""
        self.calm = False
        self._look.scaled = (loss, scaled, scaler)

    def clipped(self, kind: str, limit: float, norm: torch.Tensor | None) -> None:
        """The script clips its gradients."""
        if "clip" not in self._said:
            self._said.add("clip")
            self._record.event(self.step, "clip", limit=limit, kind=kind)
        self._look.clip = (limit, norm)

    def loader_started(self, loader: Any) -> None:
        """A pass over a data set begins; whether for training shows at the next backward."""
        self._evaluations.loader, self._loader_news, self.calm = loader, True, False

    def fetching(self) -> None:
        """The next batch is made."""
        self._passes.fetching()

    def _epoch(self) -> None:
        self._loader_news = False
        loader = self._evaluations.loader
        facts: dict[str, Any] = {}
        try:
            facts["batches"] = len(loader)
            facts["samples"] = len(loader.dataset)
        except (TypeError, AttributeError):  # an iterable data set has no length
            pass
        facts["batch_size"] = getattr(loader, "batch_size", None)
        if "samples" in facts:
            self._record.fact("dataset_size", facts["samples"])
        self._record.event(self.step, "epoch", **facts)

    def aside(self, begins: bool) -> None:
        """What Keras calls to compute its own figures is none of the script's."""
        self._passes.look_away(begins)

    def compared(self, loss: Any, target: Any, prediction: Any, value: Any, weighted: bool) -> None:
        """Keras has computed a loss: taken for the call of torch that gives the same."""
        if self._passes.open:
            with quiet():
                self._passes.compared(call_of(loss, target, prediction, value, weighted=weighted))

    def compiling(self, thing: Any) -> None:
        """Compiled code must not see hooks come and go: forward passes are not looked into any more."""
        if isinstance(thing, nn.Module) and self._adopt:
            self._names.add(thing)
        self._forbid()

    def capturing(self, begins: bool) -> None:
        """A captured step is none, and its replays are not seen: the steps around it are watched."""
        self.calm = False
        self._pace.disturbed = True
        self._losses = []
        if begins:
            self._passes.end()
            self._record.fact("captured", True)
        else:
            self._resume()

    def _forbid(self) -> None:
        if not self._passes.forbidden:
            self._passes.end()
            self._passes.forbidden = True
            self._record.fact("compiled", True)

    def _alarmed(self) -> None:
        """Something is not finite: look closely, judge at once."""
        self.cadence.stir(self.step, urgent=True)
        self._wake = self.step
        if self._live is not None:
            self._live.hurry()

    def failed(self, where: str, error: Exception) -> None:
        """Something in akeso went wrong: that part is switched off, which is said once."""
        if device_failed(error):
            self._mailbox.lost = True
            return  # the script is told so by its next call
        self._record.event(self.step, "probe-off", where, error=f"{type(error).__name__}: {error}")
        if where not in self._said:
            self._said.add(where)
            self._say(
                f"an error of akeso's own switched part of the watch off ({where}: {type(error).__name__}: {error})"
            )

    def pause(self) -> None:
        """Take everything out that stands in the way of others."""
        self._passes.end()
        self.cadence.pause()

    def resume(self) -> None:
        """Go on where :meth:`pause` left off."""
        self.cadence.resume()
        self._pace.disturbed = True  # what lies between is no step
        self._resume()

    def catch_up(self) -> None:
        """Bring everything that is under way into the history."""
        self._book.flush(time.perf_counter(), force=True)
        self._mailbox.collect(wait=True)
        if self._members:
            self._members.list_layers()  # of what was listed before its first pass, use and order are known now

    def close(self) -> None:
        """Stop looking and end the record."""
        if self._closed:
            return
        self._closed = True
        self._passes.end()
        self.follows = False
        try:
            self._hand_step_over()
            self._end_evaluation(by_backward=False)
            if self._losses and not self._members:
                self._spread_losses()
            self.catch_up()
            self._loose.close(self.step)
            self._batches.evaluated(self._passes, self.step)
            if not self._members and self._idle.optimizer:
                self._record.fact("never_stepped", self._idle.optimizer)
            if self._members:
                self._members.list_layers()
            self._record.fact("overhead", self.cadence.overhead)
            self._record.fact("watch_seconds", round(self.cadence.spent, 3))
        except Exception as error:
            self.failed("close", error)
        self.history.finished = True
        self._record.end(steps=self.step, overhead=self.cadence.overhead)
