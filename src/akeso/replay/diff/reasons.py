"""From what differs to why: the cause in one word, one sentence, and what speaks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from akeso.replay.diff.operations import OperationDifference
from akeso.replay.diff.recording import Recording
from akeso.replay.diff.rerun import Rerun

Conclusion = tuple[str, str, list[str]]

# Differences of the surroundings that change the result of the same operation on the same inputs.
_KERNELS = ("threads", "flags", "versions", "devices", "environment")


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that is known when a cause is looked for."""

    a: Recording
    b: Recording
    step: int
    differing: tuple[str, ...]
    operation: OperationDifference | None
    reruns: tuple[Rerun, Rerun] | None
    environment: tuple[str, ...]

    def surroundings(self, *groups: str) -> list[str]:
        """The differences of the environment that belong to some groups."""
        return [line for line in self.environment if line.startswith(groups)]


def conclude(case: Case) -> Conclusion:
    """Name the cause of a difference."""
    wavering = _wavering(case)
    if wavering is not None:
        return wavering
    processes = case.surroundings("processes:")
    if processes:
        return (
            "environment",
            f"the runs had different numbers of processes ({processes[0].removeprefix('processes: ')}); "
            "each process draws its own dropout masks and sees its own part of a batch",
            processes,
        )
    if case.operation is not None:
        return _by_operation(case, case.operation)
    return _by_record(case)


def _wavering(case: Case) -> Conclusion | None:
    """A run that does not repeat itself when run again explains a difference all by itself."""
    if case.reruns is None:
        return None
    for recording, again in zip((case.a, case.b), case.reruns, strict=True):
        if again.repeats is not False:
            continue
        evidence = [f"{recording.name}, run again under the same conditions, departs from its record at "
                    f"{again.departure}"]  # fmt: skip
        uses = _uses(recording)
        hashing = recording.fingerprint.get("hash seed", {}).get("PYTHONHASHSEED") == "random"
        if hashing and not uses:
            return (
                "nondeterminism",
                "the order of sets follows Python's random hash seed; start with PYTHONHASHSEED=0, or "
                "sort the set",
                evidence,
            )
        operation = case.operation
        if operation is not None and operation.kind == "output" and not operation.operation.random:
            evidence += uses
            return (
                "nondeterminism",
                f"{_named(operation)} does not repeat itself: the same inputs give different outputs",
                evidence,
            )
        if uses:
            return "nondeterminism", f"the program uses {uses[0]}, which no seed decides", evidence + uses[1:]
        where = f"; it shows first at {_named(operation)}" if operation is not None else ""
        return "nondeterminism", f"the program does not repeat itself{where}", evidence
    return None


def _uses(recording: Recording) -> list[str]:
    """Sources that no seed decides; those in the training loop first, clocks last: most are read for logs."""
    # A prepared run seeds generators that were made without a seed; a plain one does not.
    kinds = (
        ("entropy", "time") if recording.begin.get("seed") is not None else ("generator", "entropy", "time")
    )
    found = [event for event in recording.events if event.kind in kinds]
    found.sort(key=lambda event: (event.kind == "time", not event.in_step))
    return [f"{event.what} at {event.place}" for event in found]


def _by_operation(case: Case, difference: OperationDifference) -> Conclusion:
    operation = difference.operation
    if difference.kind == "output":
        if operation.random:
            follows = "; the samples come in another order" if "order" in case.differing else ""
            return _randomness(case, f"{_named(difference)} draws other random numbers{follows}")
        around = case.surroundings(*_KERNELS)
        if around:
            return (
                "environment",
                f"{_named(difference)} gives other bits from the same inputs, because of another environment "
                f"({around[0]})",
                around,
            )
        return (
            "nondeterminism",
            f"{_named(difference)} gives different outputs from the same inputs: its kernel is not "
            "deterministic",
            [],
        )
    if difference.kind == "input":
        if difference.source != "outside":
            return _parameters(case, difference.source)
        return _data(case, difference)
    return _another_call(case, difference)


def _another_call(case: Case, difference: OperationDifference) -> Conclusion:
    operation = difference.operation
    settings = _settings(case)
    if operation.phase == "optimizer":
        chosen = [line for line in settings if line.startswith("optimizer")]
        text = "; ".join(chosen) if chosen else f"{_named(difference)} is called differently"
        return "optimizer", f"the optimizer steps differently: {text}", []
    shapes_differ = difference.a and difference.b and difference.a.shapes != difference.b.shapes
    loaders = [line for line in settings if line.startswith("loader")]
    if operation.phase == "data" or (shapes_differ and loaders and "order" in case.differing):
        if not loaders and (operation.random or "generators" in case.differing[:2]):
            return _randomness(case, f"{_named(difference)} is called differently while data is prepared")
        return _data(case, difference)
    if operation.phase == "between":
        return _between(case, difference)
    if operation.phase == "gradient":
        what = f"the gradient is treated differently before the step: {_calls(difference)}"
        return "gradient", what, settings
    if operation.phase == "backward":
        return "gradient", f"the backward pass differs: {_calls(difference)}", settings
    return "forward", f"the forward pass or the loss is computed differently: {_calls(difference)}", settings


def _between(case: Case, difference: OperationDifference) -> Conclusion:
    """A call between two steps, outside loaders: the program prepares data, or updates a copy of the model."""
    first = case.differing[0]
    if first == "others":
        what = f"a model or buffer that no gradient trains is updated differently: {_calls(difference)}"
        return "parameters", what, []
    if difference.operation.random or first == "generators":
        return _randomness(case, f"{_named(difference)} is called differently")
    changed = _initial(case) if case.step == 1 else []
    if changed and len(changed) < sum(len(tensors) for tensors in case.a.models.values()):
        what = f"the runs start from different parameters: {', '.join(changed[:3])}; {_calls(difference)}"
        return "parameters", what, _seeds(case)
    if first in ("order", "samples", "inputs"):
        return _data(case, difference)
    return "forward", f"the program computes differently: {_calls(difference)}", _settings(case)


def _parameters(case: Case, name: str) -> Conclusion:
    changed = _initial(case)
    if changed:
        seeds = _seeds(case)
        if seeds and len(changed) > 1:
            return "randomness", f"the models were initialised from different seeds: {seeds[0]}", changed[:3]
        return "parameters", f"the runs start from different parameters: {', '.join(changed[:3])}", seeds
    return (
        "parameters",
        f"{name} had another value before step {case.step}: it was changed outside the recorded steps",
        [],
    )


def _data(case: Case, difference: OperationDifference | None) -> Conclusion:
    where = f" (first at {_named(difference)})" if difference is not None else ""
    settings = [line for line in _settings(case) if line.startswith("loader")]
    seeds = _seeds(case)
    cutting = [line for line in settings if "workers" not in line and "worker_init_fn" not in line]
    if "order" in case.differing and cutting:
        return "data", f"the samples come in another order: {cutting[0]}{where}", cutting[1:]
    if "order" in case.differing:
        if seeds:
            return "randomness", f"the order of the samples comes from different seeds: {seeds[0]}", seeds[1:]
        if _generators_differ(case):
            return _randomness(case, "the samples come in another order")
        return "data", f"the samples come in another order{where}", settings
    workers = [line for line in settings if "workers" in line]
    if workers:
        return (
            "data",
            f"the loader prepares samples differently: {workers[0]}; randomness in workers depends on "
            "their number",
            settings,
        )
    if _generators_differ(case):
        return _randomness(case, f"the data is prepared with other random numbers{where}")
    hashes = case.surroundings("hash seed:")
    if hashes:
        return "environment", f"the data depends on the order of a set: {hashes[0]}{where}", hashes
    what = _which_samples(case)
    if difference is None or difference.operation.phase in ("data", "forward"):
        return "data", f"the data itself differs{what}{where}", settings
    return "data", f"a value from outside torch differs{what}{where}", settings


def _randomness(case: Case, what: str) -> Conclusion:
    seeds = _seeds(case)
    evidence = seeds + _generator_lines(case)
    created = [
        f"{event.what} at {event.place}"
        for r in (case.a, case.b)
        for event in r.events
        if event.kind == "generator"
    ]
    reason = f"; {seeds[0]}" if seeds else ""
    if not seeds and case.a.begin.get("seed") != case.b.begin.get("seed"):
        reason = f"; the runs have different seeds: {case.a.begin.get('seed')} and {case.b.begin.get('seed')}"
    elif not seeds and created:
        reason = f"; {created[0]}"
    return "randomness", f"{what}{reason}", evidence


def _by_record(case: Case) -> Conclusion:
    """Without operations: what the digests of the steps say by themselves."""
    changed = _initial(case) if case.step == 1 else []
    if changed:
        return _parameters(case, changed[0])
    first = case.differing[0]
    if first in ("order", "samples", "inputs"):
        return _data(case, None)
    if first == "generators":
        return _randomness(case, "the random generators are in different states")
    settings = _settings(case)
    chosen = [line for line in settings if line.startswith("optimizer")]
    if first in ("parameters", "optimizer"):
        text = "; ".join(chosen) if chosen else "the same gradient led to other parameters"
        return "optimizer", f"the optimizer steps differently: {text}", []
    around = case.surroundings(*_KERNELS)
    cause = {"gradient": "gradient", "others": "parameters"}.get(first, "forward")
    said = {
        "gradient": "the loss is the same and the gradient differs",
        "others": "a buffer or a model that no gradient trains differs",
    }.get(first, "the same data and randomness gave another loss")
    if around and first in ("loss", "gradient"):
        return "environment", f"{said}; the environments differ ({around[0]})", around
    return cause, said, settings


def _initial(case: Case) -> list[str]:
    """Parameters whose initial values differ."""
    return [
        f"{name}.{path}"
        for name, tensors in case.a.models.items()
        for path, digest in tensors.items()
        if case.b.models.get(name, {}).get(path, digest) != digest
    ]


def _seeds(case: Case) -> list[str]:
    mine, theirs = case.a.seeds(), case.b.seeds()
    found = []
    for (what, place, value), (other, _, given) in zip(mine, theirs, strict=False):
        if what == other and value != given:
            found.append(f"{what}({value}) and {what}({given}) at {place}")
    if len(mine) != len(theirs):
        longer = mine if len(mine) > len(theirs) else theirs
        what, place, value = longer[min(len(mine), len(theirs))]
        found.append(f"{what}({value}) at {place} is called in one run only")
    return found


def _generators_differ(case: Case) -> bool:
    """Whether a generator was in another state before the step, or was drawn from differently in it."""
    return "generators" in case.differing or bool(_generator_lines(case))


def _generator_lines(case: Case) -> list[str]:
    names = {"python": "Python's random", "numpy": "NumPy's global generator", "torch": "torch's generator"}
    for step in (case.step - 1, case.step):
        mine, theirs = _each(case.a, step), _each(case.b, step)
        found = [
            f"{names.get(name, name)} is in another state {'before' if step < case.step else 'after'} step "
            f"{case.step}"
            for name in mine
            if name in theirs and mine[name] != theirs[name]
        ]
        if found:
            return found
    return []


def _each(recording: Recording, step: int) -> dict[str, str]:
    if step == 0:
        return dict(recording.begin.get("generators", {}))
    return dict(recording.steps.get(step, {}).get("each", {}))


def _settings(case: Case) -> list[str]:
    """Differences of the settings of optimizers and loaders at the step, one sentence each."""
    mine, theirs = case.a.settings_at(case.step), case.b.settings_at(case.step)
    if not mine and not theirs and case.reruns is not None:
        # A Run does not write settings down; running it again shows them.
        mine, theirs = (
            {} if r.recording is None else r.recording.settings_at(case.step) for r in case.reruns
        )
    found = []
    for name in dict.fromkeys([*mine, *theirs]):
        if name not in mine or name not in theirs:
            found.append(f"{name} is used in one run only")
            continue
        found += [f"{name}: {line}" for line in _unequal(mine[name], theirs[name])]
    return found


def _unequal(mine: Any, theirs: Any, path: str = "") -> list[str]:
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return [
            line
            for key in dict.fromkeys([*mine, *theirs])
            for line in _unequal(mine.get(key), theirs.get(key), f"{path}.{key}" if path else str(key))
        ]
    if isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        return [
            line
            for number, (left, right) in enumerate(zip(mine, theirs, strict=True))
            for line in _unequal(left, right, f"{path}[{number}]" if len(mine) > 1 else path)
        ]
    # One group of parameters is the usual case; its name adds nothing.
    return [] if mine == theirs else [f"{path.removeprefix('groups.')} {mine!r} and {theirs!r}"]


def _which_samples(case: Case) -> str:
    """Which samples of the batch differ, when the re-runs have looked at them one by one."""
    if case.reruns is None or any(again.recording is None for again in case.reruns):
        return ""
    mine, theirs = (again.recording for again in case.reruns)
    assert mine is not None
    assert theirs is not None
    for number, (left, right) in enumerate(zip(mine.samples, theirs.samples, strict=False)):
        changed = [index for index, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]]
        if not changed:
            continue
        if len(changed) == len(left):
            return ": every sample of the batch"
        named = []
        order = mine.orders[number] if number < len(mine.orders) else None
        for index in changed[:5]:
            place = f"{index} of the batch"
            if isinstance(order, list) and index < len(order):
                place += f" (dataset index {order[index]})"
            named.append(place)
        return f": sample {', '.join(named)}"
    return ""


def _named(difference: OperationDifference | None) -> str:
    if difference is None:
        return "?"
    operation = difference.operation
    where = f" in {operation.module}" if operation.module else ""
    line = f" at {operation.line}" if operation.line else ""
    return f"{operation.short_name}{where} ({operation.phase}{line})"


def _calls(difference: OperationDifference) -> str:
    if difference.a is None or difference.b is None:
        return f"{_named(difference)} is executed in one run only"
    if difference.a.name != difference.b.name:
        other = f"{difference.b.short_name} at {difference.b.line}"
        return f"{_named(difference)} in one run, {other} in the other"
    mine, theirs = difference.a.constants, difference.b.constants
    if mine != theirs:
        return f"{_named(difference)} with ({mine}) in one run, ({theirs}) in the other"
    shapes = [", ".join(operation.shapes) for operation in (difference.a, difference.b)]
    return f"{_named(difference)} on {shapes[0]} in one run, {shapes[1]} in the other"
