"""The watch: one object per watched training, from taps to history, journal and diagnoses."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from akeso.diagnosis import Diagnosis
from akeso.errors import BadInput
from akeso.history import History
from akeso.journal import JournalWriter
from akeso.torch.naming import is_compiled
from akeso.torch.probe import Probe
from akeso.torch.record import Record
from akeso.torch.taps import TAPS

if TYPE_CHECKING:
    from akeso.examination import Examination

Models = nn.Module | Iterable[nn.Module]
Optimizers = torch.optim.Optimizer | Iterable[torch.optim.Optimizer]


class Watch:
    """A training that is being watched.

    Made by :func:`watch`; ends with :meth:`close`, at the end of a ``with`` block, or with the process.
    """

    def __init__(self, probe: Probe, profile: str | Path) -> None:
        self._probe = probe
        self._profile = profile
        self._examined: tuple[tuple[int, int], Examination] | None = None
        self._closed = False
        TAPS.add(probe)
        atexit.register(self.close)  # also keeps a watch alive that was started as a bare line

    @property
    def history(self) -> History:
        """All readings so far."""
        self._probe.catch_up()
        return self._probe.history

    @property
    def record(self) -> Record:
        """Where readings and facts go; who knows more about the run than can be seen adds it here."""
        return self._probe._record

    @property
    def steps(self) -> int:
        """Optimizer steps seen so far."""
        return self._probe.step

    @property
    def overhead(self) -> float:
        """Share of the training time that watching has taken, as measured by the watch itself."""
        return self._probe.cadence.overhead

    @property
    def examination(self) -> Examination:
        """The verdict on the history so far; made anew when there is more to judge."""
        history = self.history
        state = (history.steps, len(history.events))
        if self._examined is None or self._examined[0] != state:
            from akeso.examination import examine  # with all detectors: where they are wanted

            self._examined = (state, examine(history, self._profile))
        return self._examined[1]

    @property
    def diagnoses(self) -> tuple[Diagnosis, ...]:
        """What is wrong, roots first; empty for a healthy run."""
        return self.examination.diagnoses

    def meet_keras(self) -> None:
        """Listen to Keras, which has just been imported."""
        TAPS.meet_keras(arrived=True)

    def pause(self) -> None:
        """See nothing until :meth:`resume`, and leave torch as it was in the meantime."""
        TAPS.remove(self._probe)
        self._probe.pause()

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        if not self._closed:
            TAPS.add(self._probe)
            self._probe.resume()

    def close(self) -> None:
        """Stop watching, leave torch as it was, end the journal. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        TAPS.remove(self._probe)
        self._probe.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _repr_html_(self) -> str:
        from akeso.report import RunReport, run_document

        return RunReport(run_document(self.history, self.examination, self.overhead))._repr_html_()

    def __repr__(self) -> str:
        return f"<akeso watch: {self.steps} steps, {self.overhead:.1%} overhead>"


def _listed(kind: Any, given: Any, what: str) -> list[Any]:
    if given is None:
        return []
    found = [given] if isinstance(given, kind) else list(given) if isinstance(given, Iterable) else [given]
    for item in found:
        if not isinstance(item, kind):
            raise BadInput(
                f"akeso.watch needs {what}, or several of them; got {type(item).__name__}. "
                "Pass the model first and the optimizer second: akeso.watch(model, optimizer)"
            )
    return found


def real(optimizer: Any) -> Any:
    """The optimizer inside of wrappers that only hand on to it, as Accelerate's and Fabric's do: that one is heard."""
    while True:
        own = getattr(optimizer, "__dict__", {})
        inner = own.get("optimizer", own.get("_optimizer"))
        if inner is optimizer or not isinstance(inner, torch.optim.Optimizer):
            return optimizer
        if optimizer.param_groups is not inner.param_groups or optimizer.state is not inner.state:
            return optimizer  # it has a state of its own, and works with that
        optimizer = inner


def watch(
    model: Models | None = None,
    optimizer: Optimizers | None = None,
    *,
    run: str | Path | None = None,
    budget: float = 0.01,
    profile: str | Path = "akeso",
    planned_steps: int | None = None,
    statistics: bool = False,
    on_finding: Callable[[Diagnosis], None] | None = None,
    eager: bool = False,
    frugal: bool = False,
    say: Callable[[str], None] | None = None,
    rank: int = 0,
) -> Watch:
    """Watch a training loop from here on.

    Args:
        model: The model or models; without any, every model of the process that an optimizer trains.
        optimizer: The optimizer or optimizers; without any, those that hold parameters of the models.
        run: Folder for the journal; without one, readings are kept in memory only.
        budget: Share of the training time that watching may take.
        profile: Detectors and thresholds: ``"akeso"``, ``"autotrainer"``, ``"bttackler"`` or a file.
        planned_steps: Length of the training, when known, in optimizer steps.
        statistics: Also record BTTackler's ten statistics of every gradient and weight.
        on_finding: Called once per problem as soon as it is known.
        eager: Look for findings more often, at a cost of up to 5 % of the time: for runs that are to be stopped.
        frugal: Give fewer looks away at the beginning of the run, for searches that train many short ones.
        say: Where akeso reports trouble of its own; standard error by default.
        rank: Which of several processes this is.

    Example:
        >>> import torch, akeso
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> with akeso.watch(model, optimizer) as watch:
        ...     for _ in range(30):
        ...         x = torch.randn(16, 2)
        ...         loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        ...         optimizer.zero_grad()
        ...         loss.backward()
        ...         optimizer.step()
        >>> watch.diagnoses
        ()
    """
    if "keras" in sys.modules:
        from akeso.keras.mirrors import mirrored

        model = mirrored(model)
    models = _listed(nn.Module, model, "a torch.nn.Module")
    optimizers = [real(one) for one in _listed(torch.optim.Optimizer, optimizer, "a torch.optim.Optimizer")]
    if not 0 < budget <= 1:
        raise BadInput(
            f"budget is the share of the training time that watching may take, in (0, 1]; got {budget}"
        )
    if profile != "akeso":
        from akeso.examination import examine

        examine(History(), profile)  # a profile that cannot be used is said now, not at the end of a long run
    probe = Probe(
        models,
        optimizers,
        adopt=not models,
        budget=budget,
        profile=profile,
        planned_steps=planned_steps,
        statistics=statistics,
        journal=JournalWriter(Path(run), rank=rank) if run is not None else None,
        on_finding=on_finding,
        eager=eager,
        frugal=frugal,
        say=say or _to_stderr,
    )
    if any(is_compiled(root) for root in models):
        probe.compiling(None)
    return Watch(probe, profile)


def watch_everything(**options: Any) -> Watch:
    """Watch every model and optimizer of this process; what ``akeso run`` does before a script starts."""
    return watch(None, None, **options)


def _to_stderr(message: str) -> None:
    print(f"akeso: {message}", file=sys.stderr)
