"""What an audit says."""

from __future__ import annotations

import linecache
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Source:
    """One source of nondeterminism in a script."""

    kind: str
    """``generator``, ``unseeded``, ``seed``, ``entropy``, ``time``, ``set order``, ``folder order``, ``operation``,
    ``file``, ``setting`` or ``unknown``."""
    what: str
    place: str
    """``file:line`` in the script or a module beside it; empty where no line can be named."""
    code: str
    """The text of that line."""
    evidence: str
    """What was seen when it was tried."""
    advice: str


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The outcome of an audit."""

    script: str
    steps: int
    runs: int
    equal: bool
    """Whether two plain runs of the script gave the same bits."""
    sources: tuple[Source, ...]
    conditions: tuple[str, ...]
    """What the bits depend on, without being nondeterministic: thread count, number of workers."""
    notes: tuple[str, ...]
    typing: tuple[dict[str, str], ...] = ()
    """How the state of an ``akeso.replay.Run`` in the script is classified."""

    def document(self) -> dict[str, Any]:
        """The report as plain JSON."""
        return {
            "script": self.script,
            "steps": self.steps,
            "runs": self.runs,
            "equal": self.equal,
            "sources": [asdict(source) for source in self.sources],
            "conditions": list(self.conditions),
            "notes": list(self.notes),
            "typing": list(self.typing),
        }

    def text(self) -> str:
        """The report as people read it."""
        lines = []
        if not self.sources:
            bits = "equal bit for bit" if self.equal else "not comparable"
            lines.append(f"nothing found; {self.runs} runs {bits} over {self.steps} steps")
        for source in self.sources:
            where = f"{source.place}: " if source.place else ""
            lines.append(f"{where}{source.what}")
            if source.code:
                lines.append(f"    {source.code}")
            lines += [f"  seen: {source.evidence}", f"  do:   {source.advice}", ""]
        if self.sources:
            count = len(self.sources)
            lines.append(
                f"{count} source{'s' if count != 1 else ''} of nondeterminism in {Path(self.script).name}"
            )
        lines += [f"depends on: {condition}" for condition in self.conditions]
        lines += [f"note: {note}" for note in self.notes]
        if self.typing:
            width = max(len(row["name"]) for row in self.typing)
            lines.append("state of the run:")
            lines += [
                f"  {row['name']:<{width}}  {row['type']:<12}  {row['what']} ({row['held']})"
                for row in self.typing
            ]
        return "\n".join(lines)


def source_line(file: str, line: int) -> str:
    """The text of a line of the program."""
    return linecache.getline(file, line).strip()
