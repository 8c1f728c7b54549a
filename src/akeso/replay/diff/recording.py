"""A run folder read for comparison: of ``akeso.replay.Run``, or recorded by ``akeso run --deterministic``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from akeso.errors import BadInput
from akeso.replay import journal, run_folder
from akeso.replay.trace.entropy import Event, read_events

EVENTS, SCRIPT = "events.jsonl", "script.py.txt"
CAUSAL = ("order", "samples", "inputs", "generators", "loss", "gradient", "parameters", "optimizer", "others")
"""The digests of a step in the order in which they come about."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What is known of one run."""

    folder: Path
    begin: Mapping[str, Any]
    fingerprint: Mapping[str, Any]
    steps: Mapping[int, Mapping[str, Any]]
    settings: tuple[Mapping[str, Any], ...]
    models: Mapping[str, Mapping[str, str]]
    events: tuple[Event, ...]
    samples: tuple[Any, ...]
    """Digests of the single samples of the step that was traced, by batch."""
    orders: tuple[Any, ...]

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return self.folder.name

    @property
    def recorded(self) -> bool:
        """Whether the program was recorded from outside and can be run again from its command."""
        return self.begin.get("program") == "recorded"

    def settings_at(self, step: int) -> dict[str, Any]:
        """The settings of optimizers and loaders in force at a step."""
        found: dict[str, Any] = {}
        for line in self.settings:
            if line["step"] <= step:
                found[line["name"]] = line["values"]
        return found

    def seeds(self) -> list[tuple[str, str, str]]:
        """(function, place, value) of every call that seeded a global generator."""
        return [(event.what, event.place, event.value) for event in self.events if event.kind == "seed"]


def read_recording(folder: Path) -> Recording:
    """Read a run folder; damage of the journal's end is tolerated, a folder of something else is not."""
    if not folder.is_dir():
        raise BadInput(f"there is no run folder {folder}")
    read = journal.read(folder)
    begin = read.first("begin")
    if begin is None:
        raise BadInput(f"the journal in {folder} has no first line, so nothing is known of the run")
    later = read.first("fingerprint")
    steps = {line["step"]: line for line in read.all("step")}
    if (folder / run_folder.FILE).exists():
        begin = {**begin, **run_folder.read(folder)}
        # A Run knows the indices of its samples; what the recorder from outside calls their order.
        steps = {
            step: {**line, "order": line.get("samples"), "samples": None} for step, line in steps.items()
        }
    models = {line["name"]: line["parameters"] for line in read.all("model")}
    samples, orders = read.first("samples"), read.first("orders")
    return Recording(
        folder=folder,
        begin=begin,
        fingerprint=(later or begin).get("fingerprint", {}),
        steps=steps,
        settings=read.all("settings"),
        models=models,
        events=tuple(read_events(folder / EVENTS)),
        samples=tuple(samples["batches"]) if samples else (),
        orders=tuple(orders["orders"]) if orders else (),
    )


def first_difference(
    a: Recording, b: Recording, names: Sequence[str] = CAUSAL
) -> tuple[int | None, tuple[str, ...]]:
    """The first step in which two runs differ, and which digests do, first cause first; None when none
    does.
    """
    for step in sorted(set(a.steps) & set(b.steps)):
        mine, theirs = a.steps[step], b.steps[step]
        found = tuple(
            name
            for name in names
            if mine.get(name) is not None and theirs.get(name) is not None and mine[name] != theirs[name]
            if name != "generators" or _drawn_differently(a, b, step)
        )
        if found:
            return step, found
    return None, ()


def _drawn_differently(a: Recording, b: Recording, step: int) -> bool:
    """Whether a generator that is in use differs; one that nobody seeds or draws from differs by nature."""
    mine, theirs = a.steps[step].get("each"), b.steps[step].get("each")
    if mine is None or theirs is None:
        return True
    begun = [recording.begin.get("generators", {}) for recording in (a, b)]
    return any(
        mine[name] != theirs.get(name)
        and not (mine[name] == begun[0].get(name) and theirs.get(name) == begun[1].get(name))
        for name in mine
    )
