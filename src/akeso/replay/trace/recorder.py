"""Records the digests of every optimizer step of a program that knows nothing of it.

Only torch's global hooks and a handful of wrapped entry points are used; nothing is computed differently, no
random number is drawn, and ``close`` leaves everything as it was. The result is the journal of a replayable
run (see :mod:`akeso.replay.journal`) with a few more kinds of line: ``model`` (digests of the initial
parameters), ``settings`` (optimizers and loaders, whenever they change).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from akeso.replay import digests, fingerprint, generators
from akeso.replay.journal import FILE, ReplayJournal
from akeso.replay.trace.entropy import Entropy
from akeso.replay.trace.loading import Loading, sample_digests
from akeso.replay.trace.models import Models
from akeso.replay.trace.modules import ModuleStack
from akeso.replay.trace.operation import write_trace
from akeso.replay.trace.tracer import Tracer

EVENTS, TRACE, SCRIPT = "events.jsonl", "trace.jsonl", "script.py.txt"


class Enough(BaseException):
    """Ends a program after the last step that was asked for; not an ``Exception``, so that nobody
    swallows it.
    """


class Recorder:
    """Writes the digests of each optimizer step into a run folder, from ``start`` to ``close``.

    Args:
        folder: The run folder; made when it does not exist.
        seed: The seed the process was prepared with, for the record.
        command: What was started: script, arguments, working folder; ``akeso diff`` runs it again from this.
        stop_after: End the program (by :class:`Enough`) after this many optimizer steps.
        trace: Number of the step, counted from 1, whose operations are written down one by one.
        entropy: The watch over unseeded sources, when there is one already.
        workers: Added to the number of workers of every data loader.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        seed: int | None = None,
        command: dict[str, Any] | None = None,
        stop_after: int | None = None,
        trace: int | None = None,
        entropy: Entropy | None = None,
        workers: int = 0,
    ) -> None:
        self.folder = Path(folder)
        self._seed, self._command = seed, command or {}
        self._stop_after, self._trace_step = stop_after, trace
        self._entropy = entropy
        self.steps = 0
        self._phase = "between"
        self._losses: list[str] = []
        self._gradient: str | None = None
        self._settings: dict[str, Any] = {}
        self._stack = ModuleStack(entered=self._entered)
        self._models = Models(self._stack)
        self._loading = Loading(self._loader_opened, self._fetching, workers)
        self._inputs: list[torch.Tensor] = []
        self._tracer: Tracer | None = None
        self._undo: list[Callable[[], None]] = []
        self._journal: ReplayJournal | None = None

    def start(self) -> Recorder:
        """Install the hooks and write the first line."""
        self.folder.mkdir(parents=True, exist_ok=True)
        _set_aside(self.folder / FILE)
        self._journal = ReplayJournal(self.folder)
        script = self._command.get("script")
        body = {
            "program": "recorded",
            "seed": self._seed,
            "command": self._command,
            "fingerprint": _fingerprint(),
            "code": fingerprint.code(Path(script) if script else None),
            "generators": _generator_digests(),
            "processes": int(os.environ.get("WORLD_SIZE", "1")),
        }
        self._journal.append("begin", body)
        if script and Path(script).exists():
            # Kept beside the digests: the script may be edited before somebody asks what it did.
            (self.folder / SCRIPT).write_bytes(Path(script).read_bytes())
        before = register_optimizer_step_pre_hook(self._before_step)
        after = register_optimizer_step_post_hook(self._after_step)
        self._undo = [before.remove, after.remove, self._stack.stop, self._loading.stop]
        self._stack.start()
        self._loading.start()
        self._wrap_backward()
        if self._trace_step == 1:
            self.begin_trace()
        return self

    def close(self) -> None:
        """Remove every hook and close the journal."""
        self.end_trace()
        for undo in reversed(self._undo):
            undo()
        self._undo = []
        if self._journal is not None:
            self._journal.append("end", {"steps": self.steps, "fingerprint": _fingerprint()})
            self._journal.close()
            self._journal = None

    def __enter__(self) -> Recorder:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _wrap_backward(self) -> None:
        original = torch.autograd.backward

        def backward(tensors: Any, *arguments: Any, **named: Any) -> None:
            first = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
            if first is not None and first.numel() == 1:
                self._losses.append(digests.bits(first))
            self._models.note_initial(self._write)
            original(tensors, *arguments, **named)
            self._phase = "gradient"

        def undo() -> None:
            torch.autograd.backward = original

        torch.autograd.backward = backward
        self._undo.append(undo)

    def _entered(self, module: torch.nn.Module, arguments: Any) -> None:
        self._phase = "forward"
        if torch.is_grad_enabled():
            given = arguments if isinstance(arguments, tuple | list) else [arguments]
            # An input that carries a gradient comes from another model, not from the data.
            self._inputs += [a for a in given if isinstance(a, torch.Tensor) and not a.requires_grad]

    def _fetching(self, inside: bool) -> None:
        self._phase = "data" if inside else "between"

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._phase = "optimizer"
        self._models.note_initial(self._write)
        self._gradient = str(digests.of_tensors(p.grad for p in _parameters(optimizer)))
        self._note_settings(optimizer)
        if self.steps == 0:
            # Once more: scripts set threads and precision by themselves before they begin to train.
            self._write("fingerprint", {"fingerprint": _fingerprint()})

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.steps += 1
        self.end_trace()
        batches, orders = self._loading.take()
        line: dict[str, Any] = {
            "step": self.steps,
            "epoch": 0,
            "batch": self.steps - 1,
            "order": digests.of(orders) if orders else None,
            "samples": digests.of(batches or self._inputs) if batches or self._inputs else None,
            "inputs": str(digests.of_tensors(self._inputs)),
            "generators": generators.digest(),
            "each": _generator_digests(),
            "loss": "+".join(self._losses) or None,
            "gradient": self._gradient,
            "parameters": str(digests.of_tensors(_parameters(optimizer))),
            "optimizer": digests.of(optimizer.state_dict()["state"]),
            "others": self._models.others(optimizer, self.steps),
        }
        self._write("step", {name: value for name, value in line.items() if value is not None})
        if self.steps == self._trace_step:
            self._write("samples", {"batches": [sample_digests(b) for b in batches or [self._inputs]]})
            self._write("orders", {"orders": [_plain(order) for order in orders]})
        self._losses, self._inputs, self._gradient = [], [], None
        self._phase = "between"
        if self._entropy is not None:
            self._entropy.training = True
        if self._stop_after is not None and self.steps >= self._stop_after:
            raise Enough
        if self._trace_step == self.steps + 1:
            self.begin_trace()

    def begin_trace(self) -> None:
        """Write down operations from here on."""
        self._tracer = Tracer(
            phase=lambda: self._phase, module=lambda: self._stack.path, names=self._stack.tensor_names
        )
        self._tracer.__enter__()  # type: ignore[no-untyped-call]

    def end_trace(self) -> None:
        """Write the operations to the run folder; nothing when none were asked for."""
        if self._tracer is not None:
            tracer, self._tracer = self._tracer, None
            tracer.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            write_trace(self.folder / TRACE, tracer.operations)

    def _note_settings(self, optimizer: torch.optim.Optimizer) -> None:
        groups = [
            {name: _plain(value) for name, value in group.items() if name != "params"}
            for group in optimizer.param_groups
        ]
        self._changed(f"optimizer {type(optimizer).__name__}", {"groups": groups})

    def _loader_opened(self, settings: dict[str, Any]) -> None:
        self._changed(f"loader of {settings['dataset']}", settings)

    def _changed(self, name: str, values: dict[str, Any]) -> None:
        if self._settings.get(name) != values:
            self._settings[name] = values
            self._write("settings", {"step": self.steps + 1, "name": name, "values": values})

    def _write(self, kind: str, body: dict[str, Any]) -> None:
        if self._journal is not None:
            self._journal.append(kind, body)
            if self._journal.trouble:
                print(f"akeso: {self._journal.trouble}", file=sys.stderr)
                self._journal = None


def _set_aside(path: Path) -> None:
    """An earlier recording in the same folder keeps its lines under another name."""
    number = 1
    while path.exists():
        other = path.with_name(f"{path.stem}-{number}{path.suffix}")
        if not other.exists():
            path.rename(other)
        number += 1


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _fingerprint() -> dict[str, Any]:
    # Through JSON: versions are instances of a class of torch's own.
    taken: dict[str, Any] = json.loads(json.dumps(fingerprint.take(), default=str))
    return taken


def _generator_digests() -> dict[str, str]:
    return {name: digests.of(state) for name, state in generators.capture().items()}


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | float | str | None):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return value.item()
    return type(value).__name__
