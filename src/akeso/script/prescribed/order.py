"""What a child process is told to do, and what it answers: plain data in files."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Order:
    """One run of a script under a prescription.

    ``folder`` is where journal, log, weights and answer go. ``seed`` is put in force before the script starts;
    with ``reseed`` the script's own seeding is moved by it as well. ``sites`` is the survey of an earlier run,
    ``training_loaders`` are the numbers of the loaders that it trained with, ``control`` is a pair
    of pipes: with them a run that has reached its steps pauses instead of ending.
    """

    target: str
    arguments: list[str]
    is_module: bool
    folder: str
    prescription: list[dict[str, Any]] = field(default_factory=list)
    seed: int | None = None
    reseed: bool = False
    max_steps: int | None = None
    stop_on_error: bool = False
    metric: str | None = None
    profile: str = "akeso"
    planned_steps: int | None = None
    sites: list[dict[str, Any]] = field(default_factory=list)
    training_loaders: list[int] = field(default_factory=list)
    keep_files: bool = True
    control: list[int] | None = None

    def write(self, path: Path) -> None:
        """Write the order down."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Order:
        """The order in a file."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


@dataclass(slots=True)
class Answer:
    """What came of it. ``ended`` is "finished", "steps", "refused", "error-found", "crashed", "input" or
    "overwrites"; ``reason`` says more."""

    ended: str = "crashed"
    reason: str = ""
    code: int = 1
    steps: int = 0
    planned_steps: int | None = None
    epoch_steps: int | None = None
    ledger: dict[str, Any] = field(default_factory=dict)
    sites: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[list[float]] = field(default_factory=list)
    weights: str | None = None
    best_weights: str | None = None
    overhead: float = 0.0
    trained: bool = False

    def write(self, path: Path) -> None:
        """Write the answer down, whole or not at all."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self)), encoding="utf-8")
        part.replace(path)

    @classmethod
    def read(cls, path: Path) -> Answer:
        """The answer in a file."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))
