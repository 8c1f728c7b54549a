"""Looking often at the start, seldom later, and within the budget."""

from __future__ import annotations

from akeso.torch.cadence import Cadence


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _looks(
    steps: int, step_seconds: float, look_seconds: float, budget: float = 0.01, frugal: bool = False
) -> tuple[list[int], Cadence]:
    clock = _Clock()
    cadence = Cadence(budget, clock, frugal=frugal)
    looks = []
    for step in range(steps):
        due = cadence.due(step)
        clock.now += step_seconds
        if due:
            clock.now += look_seconds
            cadence.sampled(step, look_seconds)
            looks.append(step)
    return looks, cadence


def test_a_short_run_is_seen_too() -> None:
    looks, _ = _looks(60, 0.001, 0.002)
    assert looks[:2] == [0, 1]
    assert len(looks) >= 7
    assert looks[-1] >= 28


def test_many_short_runs_are_looked_at_less() -> None:
    looks, cadence = _looks(460, 0.02, 0.013, frugal=True)
    usual, _ = _looks(460, 0.02, 0.013)
    assert looks[:3] == [0, 1, 9]
    assert len(looks) <= 0.6 * len(usual)
    assert cadence.overhead < 0.01
    cadence.stir(460)
    assert not cadence.due(461)  # what moves in a short run is not worth a closer look
    cadence.stir(460, urgent=True)
    assert cadence.due(461)  # what breaks is


def test_a_long_run_stays_within_its_budget() -> None:
    _, cadence = _looks(20_000, 0.001, 0.0015)
    assert cadence.overhead <= 0.01


def test_cheap_looks_are_not_taken_at_every_step() -> None:
    looks, _ = _looks(4_000, 0.1, 0.0001)
    assert 4_000 / 10 < len(looks) < 4_000 / 7


def test_a_larger_budget_means_more_looks() -> None:
    few, _ = _looks(5_000, 0.001, 0.001, 0.01)
    many, _ = _looks(5_000, 0.001, 0.001, 0.05)
    assert len(many) > 2 * len(few)


def test_something_that_moves_is_looked_at_closely() -> None:
    clock = _Clock()
    cadence = Cadence(0.01, clock)
    for step in range(100):
        if cadence.due(step):
            cadence.sampled(step, 1.0)
    cadence.stir(100)
    assert [cadence.due(step) for step in (100, 101, 102)] == [True, True, True]
    assert not cadence.due(103)


def test_time_that_was_not_watched_pays_for_nothing() -> None:
    clock = _Clock()
    cadence = Cadence(0.01, clock)
    clock.now = 10.0
    cadence.pause()
    clock.now = 1_000.0
    assert cadence.elapsed == 10.0
    cadence.resume()
    clock.now = 1_005.0
    assert cadence.elapsed == 15.0


def test_asking_only_when_it_is_worth_it_misses_no_look_for_long() -> None:
    clock = _Clock()
    cadence, always = Cadence(0.01, clock), Cadence(0.01, clock)
    asked, wake = 0, 0
    looks: dict[str, list[int]] = {"seldom": [], "always": []}
    for step in range(3_000):
        clock.now += 0.01
        if always.due(step):
            always.sampled(step, 0.002)
            looks["always"].append(step)
        if step >= wake:
            asked += 1
            if cadence.due(step):
                cadence.sampled(step, 0.002)
                looks["seldom"].append(step)
            wake = cadence.earliest(step)
    assert asked < 3_000 / 4
    assert len(looks["seldom"]) >= 0.8 * len(looks["always"])
    assert set(looks["seldom"]) >= {0, 1, 2, 4, 8, 16, 32} & set(looks["always"])
