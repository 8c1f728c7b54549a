"""Repeats of the comparison that were simulated already, so that it goes on where it stopped.

A file of JSON lines. Each is named by everything it depends on: the trials, the sampler, the rule, the share of the
pool, the seed, and the source of the rule, of samplers and of the simulator. What was simulated by other code is never
taken for a result of this one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from akeso.search.recorded import RecordedTrial
from benchmarks.search.repeats import Repeat, repeat_of

#: Whose source every repeat depends on.
JUDGING = (
    "akeso.diagnosis", "akeso.history", "akeso.search.curves", "akeso.search.measures",
    "akeso.search.optuna_rules", "akeso.search.recorded", "akeso.search.rules", "akeso.search.simulation",
    "akeso.search.tally", "akeso.search.traits", "akeso.search.verdict", "benchmarks.search.evaluation",
    "benchmarks.search.forest", "benchmarks.search.ranked", "benchmarks.search.samplers",
    "benchmarks.search.space",
)  # fmt: skip
#: Whose source those of rules that are profiles depend on as well.
PROFILES = (
    "akeso.search.forecast", "akeso.search.judge", "akeso.search.kin", "akeso.search.kinship",
    "akeso.search.profiles", "akeso.search.regression", "akeso.search.student",
)  # fmt: skip
_ARE_PROFILES = ("akeso", "bttackler")


class Kept:
    """The repeats in a file, found by their names."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, Repeat] = {}
        self._source = _digest(_source(module) for module in JUDGING)
        self._with_profiles = _digest(_source(module) for module in (*JUDGING, *PROFILES))
        if file.exists():
            text = file.read_text()
            if text and not text.endswith("\n"):  # the last line of one that was killed
                file.write_text(text + "\n")
            for line in text.splitlines():
                try:
                    said = json.loads(line)
                except ValueError:
                    continue
                self._known[said["of"]] = repeat_of(said["repeat"])

    def naming(self, trials: Iterable[RecordedTrial], *of: object) -> Callable[[str, int], str]:
        """What gives the name of a rule's repeat on these trials, by the source that there is now."""
        told = (f"{t.number} {t.values} {t.seconds} {t.params} {t.losses}".encode() for t in trials)
        trials = " ".join([*map(str, of), _digest(told)])

        def named(rule: str, seed: int) -> str:
            return f"{rule} {seed} {trials} {self._with_profiles if rule.startswith(_ARE_PROFILES) else self._source}"

        return named

    def get(self, name: str) -> Repeat | None:
        """The repeat of that name, if it was simulated."""
        return self._known.get(name)

    def add(self, name: str, repeat: Repeat) -> None:
        """Keep a repeat, on disk at once."""
        self._known[name] = repeat
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as out:
            out.write(json.dumps({"of": name, "repeat": asdict(repeat)}) + "\n")


def _source(module: str) -> bytes:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_bytes()


def _digest(parts: Iterable[bytes]) -> str:
    made = hashlib.sha256()
    for part in parts:
        made.update(part)
    return made.hexdigest()[:16]
