"""From the history of a run to what is told and the exit code."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from akeso.examination import BY_HAND, examine
from akeso.history import History
from akeso.journal import is_run, read
from akeso.report.document import run_document, to_json
from akeso.script.folder import world_size
from akeso.script.program import Ending
from akeso.script.request import RunRequest, reaches

#: How long the first rank waits for the others to end before it judges without them.
_PATIENCE: Final = 10.0
_OWN_ERROR: Final = 2
#: Said where torch was loaded and nothing trained: the likeliest place to look.
_ELSEWHERE: Final = "processes that the script starts itself are not watched; with torchrun every one is"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a run: the exit code and the document."""

    code: int
    document: dict[str, Any]


def conclude(
    request: RunRequest,
    ending: Ending,
    history: History,
    overhead: float,
    folder: Path,
    rank: int,
    trouble: str = "",
) -> Verdict:
    """Examine the run, tell what was found, write the JSON, and give the exit code.

    In a distributed run the first rank speaks for all: the others end with the script's own code.
    """
    if rank > 0:
        return Verdict(ending.code, {})
    if world_size() > 1:
        history = _of_all_ranks(history, folder)
    examination = examine(history, request.profile)
    more: dict[str, Any] = {"run": str(folder)} if is_run(folder) else {}
    if ending.stopped:
        more["stopped"] = ending.stopped
    if ending.failed:
        more["script_exit_code"] = ending.code
    if trouble:
        more["error"] = trouble
        more["status"] = "error"
    document = run_document(history, examination, overhead, **more)
    if not history.steps and BY_HAND not in document["not_checked"]:
        if any(name in sys.modules for name in ("tensorflow", "jax")):
            document["not_checked"].append(BY_HAND)
        elif more.get("run"):
            document["not_checked"].append(_ELSEWHERE)
    code = _code(request, ending, document)
    if not request.quiet:
        _show(document)
    if request.json_file is not None:
        try:
            request.json_file.write_text(to_json(document), encoding="utf-8")
        except OSError as error:
            print(
                f"akeso: --json {request.json_file} could not be written: {error.strerror}", file=sys.stderr
            )
            code = code if ending.failed or request.exit_zero else _OWN_ERROR
    return Verdict(code, document)


def _show(document: dict[str, Any]) -> None:
    from akeso.report import terminal

    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
    try:
        terminal.show(document, sys.stderr)
    except (OSError, ValueError, AttributeError):
        return  # standard error is gone; the exit code and the journal still tell


def _code(request: RunRequest, ending: Ending, document: dict[str, Any]) -> int:
    if ending.failed or request.exit_zero:
        return ending.code
    if document["status"] == "error":
        return _OWN_ERROR
    severities = [entry["severity"] for entry in document["diagnoses"]]
    return int(any(reaches(severity, request.fail_on) for severity in severities))


def _of_all_ranks(history: History, folder: Path) -> History:
    """The history of all ranks that record into the same folder, once they have ended.

    A rank on another machine records elsewhere, and one that was killed never ends: after a while the
    verdict is given on what there is.
    """
    deadline = time.monotonic() + _PATIENCE
    while is_run(folder):
        reading = read(folder)
        if (reading.ended and len(reading.ranks) >= world_size()) or time.monotonic() > deadline:
            return reading.history
        time.sleep(0.05)
    return history
