"""One life of a program: from where its run stands to the end, or to the moment it is killed."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from akeso.replay.parallel import VirtualRanks
from akeso.replay.run import Run
from akeso.replay.state import pack
from akeso.replay.state_tracked import adopt
from benchmarks.replay.programs import PROGRAMS, Phase, Program, Scale

EPOCHS = 5


@dataclass(frozen=True, slots=True)
class Killing:
    """When a life ends: so many seconds after a step has begun, wherever it then is."""

    step: int
    delay: float

    def arm(self) -> None:
        def strike() -> None:
            time.sleep(self.delay)
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=strike, daemon=True).start()


def moved(batch: Any, device: str) -> Any:
    """Put a batch on a device."""
    if device == "cpu":
        return batch
    return [part.to(device, non_blocking=True) for part in batch]


def advance(
    program: Program, batch: Any, state: Any, ranks: list[VirtualRanks] | None = None
) -> torch.Tensor:
    """Do one step of every phase, the way such loops are written; return the last loss."""
    value = torch.zeros(())
    for number, phase in enumerate(program.phases):
        value = _phase(program, phase, batch, ranks[number] if ranks else None)
    if program.after is not None:
        program.after(state, value)
    return value.detach()


def _phase(program: Program, phase: Phase, batch: Any, ranks: VirtualRanks | None) -> torch.Tensor:
    scaler = program.scaler
    phase.optimizer.zero_grad()
    if ranks is None:
        value = phase.loss(batch)
        (scaler.scale(value) if scaler else value).backward()
    else:
        with ranks:
            for part in ranks.split(batch):
                ranks.backward(phase.loss(part), scaler=scaler)
        value = ranks.loss
    if scaler:
        scaler.unscale_(phase.optimizer)
    if phase.clip is not None:
        torch.nn.utils.clip_grad_norm_(
            [item for part in phase.modules for item in part.parameters()], phase.clip
        )
    if scaler:
        scaler.step(phase.optimizer)
        scaler.update()
    else:
        phase.optimizer.step()
    phase.optimizer.zero_grad()
    return value


def validate(program: Program) -> None:
    """Look in between, drawing random numbers as validation loops do; nothing of the training may notice."""
    torch.rand(3)
    np.random.rand(2)
    random.random()
    with torch.no_grad():
        for module in program.phases[0].modules:
            module.eval()
            module.train()


def live(
    name: str,
    folder: str,
    scale: Scale,
    device: str = "cpu",
    *,
    workers: int = 0,
    every: int = 5,
    killing: Killing | None = None,
    virtual: int = 0,
) -> dict[str, Any]:
    """Run a program under akeso until it ends or is killed; return the digest of everything it carries."""
    torch.set_num_threads(1)
    with Run(folder, seed=0, snapshot_every=every) as run:
        program = PROGRAMS[name](scale, device)
        run.track(**program.tracked)
        ranks = _ranks(program, run, virtual) if virtual else None
        seen = 0.0
        stream = run.batches(program.data, batch_size=program.batch_size, epochs=EPOCHS, workers=workers)
        for batch in stream:
            if killing is not None and run.steps + 1 >= killing.step:
                killing.arm()
                killing = None
            loss = advance(program, moved(batch, device), run.state, ranks)
            run.step(loss)
            seen += float(loss)
            run.state.best = min(run.state.get("best", 1e9), float(loss))
            if run.steps % 10 == 0:
                validate(program)
        return {
            "digest": digest(program),
            "steps": run.steps,
            "seen": seen.hex(),
            "best": run.state.best.hex(),
            "mismatches": list(run.mismatches),
            "notes": [note for note in run.notes if "going on" not in note],
        }


def _ranks(program: Program, run: Run, virtual: int) -> list[VirtualRanks]:
    # The step comes from the run, so that a resumed process draws what the first one would have drawn.
    return [
        VirtualRanks(phase.modules, virtual, seed=0, step=lambda: run.steps, name=str(number))
        for number, phase in enumerate(program.phases)
    ]


def plain(name: str, scale: Scale, device: str = "cpu") -> dict[str, Any]:
    """Run a program as most are written: torch seeded, and that is all."""
    torch.set_num_threads(1)
    # A fork inherits what a new process would draw from the system.
    random.seed()
    np.random.seed()
    torch.manual_seed(0)
    program = PROGRAMS[name](scale, device)
    value = torch.zeros(())
    for batch in plain_batches(program, EPOCHS):
        value = advance(program, moved(batch, device), {})
    return {"digest": digest(program), "loss": float(value)}


def plain_batches(program: Program, epochs: int, workers: int = 0) -> Iterator[Any]:
    """Yield the batches of an ordinary loader."""
    loader = DataLoader(program.data, program.batch_size, shuffle=True, num_workers=workers)
    for _ in range(epochs):
        yield from loader


def digest(program: Program) -> str:
    """Return SHA-256 over everything a program tracks, every bit of it."""
    whole = {name: adopt(name, value).capture() for name, value in program.tracked.items()}
    tree, tensors = pack(whole)
    total = hashlib.sha256(json.dumps(tree, sort_keys=True).encode())
    for path in sorted(tensors):
        total.update(
            tensors[path].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        )
    return total.hexdigest()
