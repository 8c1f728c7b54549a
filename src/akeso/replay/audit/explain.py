"""Sources of nondeterminism in words, each with what to do about it."""

from __future__ import annotations

from pathlib import Path

from akeso.replay.audit.report import Source, source_line
from akeso.replay.audit.sets import hash_uses
from akeso.replay.audit.trials import Trial
from akeso.replay.diff.operations import OperationDifference
from akeso.replay.trace.entropy import Event

_ADVICE = {
    "generator": "give it a seed: np.random.default_rng(seed), random.Random(seed), torch.manual_seed(seed)",
    "entropy": "draw from a seeded generator instead; the system's entropy cannot be repeated",
    "time": "do not let the clock decide over training; count steps, or use it for logs alone",
}
_SEEDING = {
    "python": ("Python's random", "random.seed(seed)"),
    "numpy": ("NumPy's global generator", "np.random.seed(seed)"),
    "torch": ("torch's global generator", "torch.manual_seed(seed)"),
}


def entropy_source(event: Event, evidence: str) -> Source:
    """A clock, the system's entropy, or a generator without a seed."""
    what = {
        "generator": f"{event.what} is created",
        "entropy": f"{event.what} draws from the system's entropy",
        "time": f"{event.what} reaches the training",
    }[event.kind]
    return Source(
        event.kind, what, event.place, source_line(event.file, event.line), evidence, _ADVICE[event.kind]
    )


def unseeded_source(generator: str, place: str, script: Path) -> Source:
    """A global generator that is drawn from before anybody seeds it."""
    name, call = _SEEDING[generator]
    code = ""
    if place.startswith(f"{script.name}:"):
        code = source_line(str(script.resolve()), int(place.rpartition(":")[2]))
    return Source(
        "unseeded",
        f"{name} is drawn from before it is seeded",
        place,
        code,
        "with it seeded at the start, runs agree where they differed before",
        f"call {call} before this line",
    )


def operation_source(difference: OperationDifference | None, departure: str) -> Source:
    """An operation that does not repeat itself, or whatever else could not be named."""
    if difference is None:
        return Source(
            "unknown",
            "two runs alike in everything that can be held fixed still differ",
            "",
            "",
            f"they depart at {departure}; the operations of two further runs agreed",
            "look for threads of the script's own, or files that another program writes",
        )
    operation = difference.operation
    where = f" in {operation.module}" if operation.module else ""
    if difference.kind == "output" and operation.random:
        what = f"{operation.short_name}{where} draws from a generator that nobody seeded"
        advice = "seed the generator it draws from; torch.Generator.seed() takes a random seed, manual_seed(n) does not"
    elif difference.kind == "output":
        what = f"{operation.short_name}{where} gives different outputs from the same inputs"
        advice = "choose a deterministic form: torch.use_deterministic_algorithms(True) tells of torch's own"
    else:
        what = f"{operation.short_name}{where} is the first operation to differ ({difference.kind})"
        advice = "look at what this line is given: it comes from outside torch and is not the same twice"
    return Source("operation", what, operation.line, "", f"two equal runs depart at {departure}", advice)


def hash_source(script: Path, basis: Trial, departure: str) -> Source:
    """The order of a set, or the hash of a text."""
    home = script.resolve().parent
    files = [home / name for name in basis.recording.begin.get("code", {})] or [script.resolve()]
    uses = [use for file in files for use in hash_uses(file)]
    evidence = f"under another PYTHONHASHSEED the bits differ at {departure}"
    advice = "sort the set before its order can matter; use hashlib for hashes that must stay"
    if not uses:
        what = "something follows the order of a set or the hash of a text"
        return Source("set order", what, "", "", evidence, advice)
    first = uses[0]
    what = first.what
    if len(uses) > 1:
        others = ", ".join(f"{Path(use.file).name}:{use.line}" for use in uses[1:6])
        what += f" (or at {others})"
    place = f"{Path(first.file).name}:{first.line}"
    return Source("set order", what, place, source_line(first.file, first.line), evidence, advice)


def directory_source(event: Event, departure: str) -> Source:
    """The order in which a folder lists its entries."""
    return Source(
        "folder order",
        f"the order of {event.what} reaches the training; file systems list as they like",
        event.place,
        source_line(event.file, event.line),
        f"with the entries in another order the bits differ at {departure}",
        "sort the entries: sorted(...)",
    )


def file_sources(trial: Trial) -> list[Source]:
    """Files that changed under the script, when its results differ from run to run."""
    return [
        Source(
            "file",
            f"the file {path} changed while the script was running",
            "",
            "",
            "its size or time of change is not what it was when it was opened, and two runs differ",
            "read data from files that nobody writes to, the script itself included",
        )
        for path in trial.status.changed_files
    ]


def setting_sources(trial: Trial) -> list[Source]:
    """Switches that allow nondeterministic kernels on a GPU."""
    found: list[Source] = []
    facts = trial.status.facts
    if facts.get("cudnn.benchmark") == "True" and facts.get("deterministic") != "True":
        found.append(
            Source(
                "setting",
                "torch.backends.cudnn.benchmark lets cuDNN choose kernels by timing them",
                "",
                "",
                "the switch was on at the end of the run, on a GPU",
                "set torch.backends.cudnn.benchmark = False and use torch.use_deterministic_algorithms(True)",
            )
        )
    if facts and facts.get("deterministic") != "True":
        found += [
            Source(
                "operation",
                f"{name} has no deterministic form on this device, or is not asked to use it",
                place,
                "",
                "torch says so when asked for deterministic algorithms",
                "call torch.use_deterministic_algorithms(True), or replace the operation",
            )
            for name, place in trial.status.alerts
        ]
    return found
