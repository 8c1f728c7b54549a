"""What ``akeso run --deterministic`` does to a process before somebody's script starts in it.

Two runs of the same script prepared with the same seed give the same bits, as far as the sources of
nondeterminism are in reach of a process: seeds, kernels, precision, threads, and generators created without a
seed. What is out of reach (the clock, the system's entropy, folders, changing files) is recorded with its
line, and ``akeso diff`` and ``akeso audit`` name it.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from akeso.replay import generators
from akeso.replay.keys import key
from akeso.replay.trace.entropy import GENERATORS, Entropy
from akeso.replay.trace.recorder import EVENTS, Enough, Recorder

__all__ = ["Enough", "Prepared", "Recorder", "Recording", "environment", "needs_restart", "prepare", "record"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was done to the process."""

    seed: int
    threads: int
    notes: tuple[str, ...]
    """What could not be done, in whole sentences."""
    entropy: Entropy | None = None
    """The watch over unseeded generators; hand it to the :class:`Recorder`."""
    _undo: tuple[Callable[[], None], ...] = field(default=(), repr=False)

    def undo(self) -> None:
        """Take the wrappers away and put the switches back; the seeds stay."""
        for step in reversed(self._undo):
            step()


def environment(seed: int, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment variables a process needs from its very start: pass them on when starting one.

    >>> environment(7, {})["PYTHONHASHSEED"]
    '7'
    """
    found = dict(os.environ if given is None else given)
    # The order of sets of strings follows this; it is read once, when Python starts.
    if found.get("PYTHONHASHSEED", "random") == "random":
        found["PYTHONHASHSEED"] = str(seed % 2**32)
    # Read by cuBLAS when its first handle is made.
    found.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    return found


def needs_restart() -> bool:
    """Whether hashes of strings are random in this process: only a fresh one, started with
    ``environment``, is not.
    """
    return bool(sys.flags.hash_randomization) and os.environ.get("PYTHONHASHSEED", "random") == "random"


def prepare(
    seed: int = 0,
    *,
    warn_only: bool = True,
    threads: int | None = None,
    events: str | Path | None = None,
    patch: bool = True,
) -> Prepared:
    """Seed every generator, ask torch for deterministic kernels in full precision, and pin the threads.

    Args:
        seed: The seed of the run. A script that seeds by itself keeps its own seeds.
        warn_only: Warn about operations without a deterministic form instead of stopping the script.
        threads: Number of threads for torch; the present number when left out, so that it is at least
            recorded.
        events: File for uses of the clock, the system's entropy and unseeded generators.
        patch: Seed generators that are created without a seed by the line that creates them.

    Loader workers need nothing: torch derives their seeds (and Python's and NumPy's in them) from its own.
    """
    notes = []
    if needs_restart():
        notes.append(
            "PYTHONHASHSEED is not set, so the order of sets of strings differs from process to process; "
            f"start the process with PYTHONHASHSEED={seed % 2**32}"
        )
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    undo = [*_switches(warn_only)]
    if threads is not None:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        undo.append(lambda: torch.set_num_threads(before))
    entropy = None
    if patch:
        entropy = Entropy(Path(events) if events else None, seed=seed, fixed=[GENERATORS])
        entropy.start()
        undo.append(entropy.stop)
    generators.seed_all(key(seed, "setup"))
    return Prepared(seed, torch.get_num_threads(), tuple(notes), entropy, tuple(undo))


class Recording:
    """A process that was prepared and is being recorded; ``close`` ends the recording."""

    def __init__(self, prepared: Prepared, recorder: Recorder) -> None:
        self._prepared, self.recorder = prepared, recorder
        self.notes = prepared.notes

    def close(self) -> None:
        """Write the last line of the journal and take every wrapper away."""
        self.recorder.close()
        self._prepared.undo()


def record(
    folder: str | Path, seed: int, script: str | Path | None, arguments: Sequence[str] = ()
) -> Recording:
    """Prepare this process and record every optimizer step into a run folder: ``akeso run --deterministic``.

    Args:
        folder: The run folder; ``akeso diff`` compares two of them.
        seed: The seed of the run.
        script: The script that is about to run, so that ``akeso diff`` can run it again; None when there is none.
        arguments: Its arguments.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    prepared = prepare(seed, events=folder / EVENTS)
    command = {
        "script": str(Path(script).resolve()) if script is not None else "",
        "arguments": [str(argument) for argument in arguments],
        "cwd": os.getcwd(),
    }
    recorder = Recorder(folder, seed=seed, command=command, entropy=prepared.entropy)
    return Recording(prepared, recorder.start())


def _switches(warn_only: bool) -> list[Callable[[], None]]:
    """Set torch's switches for deterministic kernels in full precision; return what puts them back."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn = torch.backends.cudnn
    with warnings.catch_warnings():
        # Newer versions rename these switches and warn; the old names work everywhere.
        warnings.simplefilter("ignore")
        precision = torch.get_float32_matmul_precision()
        kept = (cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32)
        efficient = torch.backends.cuda.mem_efficient_sdp_enabled()

        def restore() -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.use_deterministic_algorithms(deterministic, warn_only=warned)
                torch.set_float32_matmul_precision(precision)
                cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32 = kept
                torch.backends.cuda.enable_mem_efficient_sdp(efficient)

        torch.use_deterministic_algorithms(True, warn_only=warn_only)
        torch.set_float32_matmul_precision("highest")
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32 = True, False, False
        # Its backward pass adds with atomics, in whatever order they come.
        torch.backends.cuda.enable_mem_efficient_sdp(False)
    return [restore]
