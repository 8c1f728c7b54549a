"""Samplers and stopping rules side by side on recorded pools, by simulation."""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from akeso.history import Floats
from akeso.search.measures import Result, time_saved, top_hit_ratio
from akeso.search.profiles import AKESO, BTTACKLER
from akeso.search.recorded import RecordedStudy, RecordedTrial
from akeso.search.rules import ExtrapolationRule, NanRule, NoRule, ProfileRule, Rule, Seen
from akeso.search.simulation import Simulated, simulate
from akeso.search.tally import finals_of, goal_among, is_wrong
from akeso.search.verdict import CONTINUE, Verdict
from benchmarks.search.kept import Kept
from benchmarks.search.repeats import HORIZON, Line, Repeat, Searches
from benchmarks.search.samplers import SAMPLERS
from benchmarks.search.space import Space

#: The plain search sees so much of the pool. A rule can win by no more than what is recorded: one that knew the
#: whole pool at once reaches a Top10HR of ``1 / (1 + share)`` with random search and less with samplers that find
#: its best trials early. That ceiling is shown beside the figure, and has to lie well above it.
SHARE = 0.15
#: What is asked of ``akeso``, on average.
WANTED = {"TSBA": 0.45, "Top10HR": 0.75, "false stops": 0.02, "overhead": 0.01}
#: In the place of a rule: the plain search once more, with other random numbers. Two equal searches have half of the
#: ten best each, but not a TSBA of zero: what a search reached by luck, another reaches late.
AGAIN = "again"
_OTHER = 10_000
#: In the place of a rule: one that knows the ends of all trials. What is asked of a rule is to be seen beside that.
KNOWING = "knowing"
#: In the place of a rule: the plain search once more, with other random numbers, on a machine three times as fast. It
#: has three times as many trials and stops none: what is asked of a rule can be seen beside what that is worth.
THRICE = "thrice"
_FASTER = 3.0
#: None of them is a rule that anybody could run.
YARDSTICKS = (AGAIN, KNOWING, THRICE)
#: Ours with bounds on false stops that are looser than by default, which are compared where they are asked for.
LOOSER = {f"akeso-{rate:g}": replace(AKESO, false_stops=rate) for rate in (0.05, 0.1, 0.2)}


def _pruner(name: str, epochs: int) -> Rule:
    import optuna

    from akeso.search.optuna_rules import PrunerRule

    made = {
        "median": lambda: optuna.pruners.MedianPruner(),
        "asha": lambda: optuna.pruners.SuccessiveHalvingPruner(),
        "hyperband": lambda: optuna.pruners.HyperbandPruner(max_resource=epochs),
    }
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return PrunerRule(made[name](), name)


class KnowingRule(Rule):
    """Knows how every trial would end: only those of the best quarter so far go on after two epochs."""

    name = KNOWING

    def __init__(self) -> None:
        self._ends: list[float] = []

    def judge(self, trial: RecordedTrial, costs: Floats, seen: Seen) -> Verdict:
        if len(costs) != 2:
            return CONTINUE
        sign = -1.0 if seen.maximize else 1.0
        end = min((sign * value for value in trial.values if math.isfinite(value)), default=math.inf)
        self._ends.append(end)
        if end <= np.quantile(self._ends, 0.25, method="higher"):
            return CONTINUE
        return Verdict("stop", "forecast", "hopeless-curve", epoch=1, evidence={"forecast": sign * end})


RULES: dict[str, Callable[[int], Rule]] = {
    AGAIN: lambda epochs: NoRule(),
    KNOWING: lambda epochs: KnowingRule(),
    THRICE: lambda epochs: NoRule(),
    "nan": lambda epochs: NanRule(),
    "median": lambda epochs: _pruner("median", epochs),
    "asha": lambda epochs: _pruner("asha", epochs),
    "hyperband": lambda epochs: _pruner("hyperband", epochs),
    "extrapolation": lambda epochs: ExtrapolationRule(),
    "bttackler": lambda epochs: ProfileRule(BTTACKLER),
    "akeso": lambda epochs: ProfileRule(AKESO),
    **{name: lambda epochs, profile=profile: ProfileRule(profile) for name, profile in LOOSER.items()},
}


def budget_of(study: RecordedStudy, share: float, workers: int) -> float:
    """The seconds in which plain random search gets through ``share`` of the pool."""
    return share * sum(t.seconds[-1] for t in study.trials if t.seconds) / workers


def whole_trials(study: RecordedStudy) -> RecordedStudy:
    """The pool without trials that crashed or were cut off by the end of the recording."""
    kept = tuple(t for t in study.trials if len(t.values) == study.epochs)
    return RecordedStudy(study.name, study.maximize, study.epochs, kept, study.value_of, study.space)


def merged(studies: Sequence[RecordedStudy]) -> RecordedStudy:
    """Several pools of one task as one; their trials must not share numbers."""
    first = studies[0]
    trials = tuple(trial for study in studies for trial in study.trials)
    if len({trial.number for trial in trials}) < len(trials):
        raise SystemExit(f"two pools of {first.name} hold the same trials; record one with another --first")
    return replace(first, trials=trials)


def compare(method: Simulated, plain: Simulated, study: RecordedStudy, budget: float) -> Repeat:
    """One repeat as figures.

    Trials were lost when they would have ended in the best quarter of the trials of their own search: samplers
    that learn draw most trials from the best quarter of the pool.
    """
    ours, theirs = method.until(budget), plain.until(budget)
    times = time_saved(method.results, theirs.results, maximize=study.maximize, horizon=HORIZON * budget)
    goal = goal_among([e.would for e in ours.ended], maximize=study.maximize)
    wrong = [e for e in ours.ended if is_wrong(e, goal, study.maximize)]
    everything = [Result(0.0, value) for value in finals_of(study).values()]
    return Repeat(
        top_hit_ratio(ours.results, theirs.results, maximize=study.maximize),
        top_hit_ratio(everything, theirs.results, maximize=study.maximize),
        times,
        len(ours.ended),
        len(theirs.ended),
        sum(not e.verdict for e in ours.ended),
        len(ours.ended),
        len(wrong),
        sum(e.verdict.action == "stop" for e in wrong),
        Searches(tuple(method.results), tuple(theirs.results), budget, study.maximize),
    )


def _hurried(search: Simulated, factor: float) -> Simulated:
    """The search on a machine so many times as fast."""
    ended = tuple(replace(one, seconds=one.seconds / factor) for one in search.ended)
    return replace(search, ended=ended, seconds=search.seconds / factor)


def _repeat(
    study: RecordedStudy,
    drawn: Sequence[int],
    sampler: str,
    space: Space,
    workers: int,
    budget: float,
    seed: int,
    rules: Sequence[str],
) -> list[Repeat]:
    """One repeat of a sampler: each of these rules against the search without one."""
    if not rules:
        return []
    make = SAMPLERS[sampler]
    known = frozenset(drawn)
    spent = [trial.seconds[-1] for trial in study.trials if trial.number in known]
    planned = round(workers * budget / float(np.mean(spent)))
    plain = simulate(
        study, NoRule(), make(study, space, seed, drawn, planned), workers=workers, budget=budget
    )
    found = []
    for rule in rules:
        factor = _FASTER if rule == THRICE else 1.0
        chooser = make(study, space, seed + _OTHER if rule in (AGAIN, THRICE) else seed, drawn, planned)
        end = factor * HORIZON * budget
        method = simulate(study, RULES[rule](study.epochs), chooser, workers=workers, budget=end)
        found.append(compare(_hurried(method, factor), plain, study, budget))
    return found


@contextmanager
def _mapping(jobs: int) -> Iterator[Callable[..., Iterable[list[Repeat]]]]:
    """``map`` in so many processes, or in this one."""
    if jobs == 1:
        yield map
        return
    # Matrices are small: threads of their own for each process would only get in each other's way.
    before = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    os.environ.update(dict.fromkeys(before, "1"))
    try:
        with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
            yield pool.map
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def evaluate(
    study: RecordedStudy,
    space: Space,
    *,
    samplers: dict[str, int],
    rules: list[str],
    workers: int = 1,
    share: float = SHARE,
    jobs: int = 1,
    suggested: Sequence[RecordedTrial] = (),
    say: Callable[[Line], None] | None = None,
    kept: Kept | None = None,
) -> list[Line]:
    """Every sampler with every rule, so many repeats each, against the same sampler without a rule.

    Samplers that learn may also take the trials that such samplers ``suggested`` when they were recorded. What is
    ``kept`` is not simulated again.
    """
    study = whole_trials(study)
    drawn = [trial.number for trial in study.trials]
    everything = whole_trials(merged([study, replace(study, trials=tuple(suggested))]))
    budget = budget_of(study, share, workers)
    lines = []
    with _mapping(jobs) as mapped:
        for sampler, repeats in samplers.items():
            trials = study if sampler == "random" else everything
            made: dict[tuple[str, int], Repeat] = {}
            if kept is not None:
                name = kept.naming(trials.trials, study.name, sampler, share, workers)
                pairs = product(rules, range(repeats))
                made = {pair: known for pair in pairs if (known := kept.get(name(*pair))) is not None}
            missing = [[rule for rule in rules if (rule, seed) not in made] for seed in range(repeats)]
            one = partial(_repeat, trials, drawn, sampler, space, workers, budget)
            for seed, found in enumerate(mapped(one, range(repeats), missing)):
                for rule, repeat in zip(missing[seed], found, strict=True):
                    made[rule, seed] = repeat
                    if kept is not None:
                        kept.add(name(rule, seed), repeat)
            for rule in rules:
                line = Line(study.name, sampler, rule, tuple(made[rule, seed] for seed in range(repeats)))
                lines.append(line)
                if say is not None:
                    say(line)
    return lines
