"""``python -m benchmarks.search.families``: false stops in made-up studies of kinds that the rules were not made for.

Every kind draws the curves of a study at random: how trials end, how fast they come there, noise, and hyperparameters
of which one tells something about the end. Each study is replayed in random order. Printed are, in percent of all
trials, those that were stopped, those of the best quarter that were stopped, those of it that were lost in any way, and
the time that was left of training everything to its end.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from akeso.history import Floats
from akeso.search.profiles import PROFILES
from akeso.search.recorded import RecordedStudy, RecordedTrial, of_trials
from akeso.search.rules import ProfileRule
from akeso.search.simulation import in_order, simulate
from akeso.search.tally import goal_of, is_wrong

Draw = np.random.Generator
#: A kind makes the costs of one trial from how good it is (0 is best), its epochs, and chance.
Kind = Callable[[float, Floats, Draw], Floats]


def _much(draw: Draw, middle: float, spread: float) -> float:
    return float(np.exp(draw.normal(middle, spread)))


def power_law(a: float, t: Floats, draw: Draw) -> Floats:
    """What remains falls like a power of the epochs."""
    return 0.1 + a + _much(draw, 0.5, 0.4) * t ** -_much(draw, -0.5, 0.4) + draw.normal(0, 0.01, len(t))


def noisy_power_law(a: float, t: Floats, draw: Draw) -> Floats:
    """The same with eight times the noise."""
    return power_law(a, t, draw) + draw.normal(0, 0.08, len(t))


def exponential(a: float, t: Floats, draw: Draw) -> Floats:
    """What remains falls by a share of itself."""
    fall = np.exp(-_much(draw, -1.5, 0.6) * t)
    return 0.1 + a**2 + _much(draw, 0.5, 0.5) * fall + draw.normal(0, 0.01, len(t))


def linear(a: float, t: Floats, draw: Draw) -> Floats:
    """As much in every epoch."""
    start = 0.9 + 0.1 * draw.random()
    return start + (0.2 + 0.6 * a - start) * t / len(t) + draw.normal(0, 0.005, len(t))


def late_learners(a: float, t: Floats, draw: Draw) -> Floats:
    """Half of the trials stand at chance for up to two thirds of their epochs."""
    wakes = draw.integers(1, max(2, int(0.7 * len(t)))) if draw.random() < 0.5 else 0
    learnt = 1 - np.exp(-_much(draw, -0.5, 0.4) * np.maximum(t - wakes, 0))
    return 0.9 - (0.8 - 0.7 * a) * learnt + draw.normal(0, 0.01, len(t))


def rate_steps(a: float, t: Floats, draw: Draw) -> Floats:
    """The rate falls at a half and at three quarters, and the loss with it."""
    curve = (0.6 + 0.3 * a * draw.random()) * np.exp(-0.05 * t)
    for begin in (0.5, 0.75):
        curve -= (t > begin * len(t)) * 0.6 * (0.1 + 0.25 * (1 - a)) * draw.random() ** 0.3
    return np.asarray(np.maximum(curve, 0.02) + draw.normal(0, 0.01, len(t)))


def cycles(a: float, t: Floats, draw: Draw) -> Floats:
    """The rate goes up and down four times."""
    period = max(2, len(t) // 4)
    wave = 1 - ((t - 1) % period) / max(period - 1, 1)
    return (
        0.2 + 0.7 * a + np.exp(-0.25 * t) + 0.25 * wave * (0.5 + draw.random()) + draw.normal(0, 0.01, len(t))
    )


def overfitting(a: float, t: Floats, draw: Draw) -> Floats:
    """From some epoch on it gets worse."""
    turn = draw.integers(2, len(t) + 1)
    worse = np.maximum(t - turn, 0) * 0.03 * draw.random()
    return 0.3 + 0.5 * a + np.exp(-_much(draw, -0.5, 0.5) * t) + worse + draw.normal(0, 0.01, len(t))


def crossing(a: float, t: Floats, draw: Draw) -> Floats:
    """The better a trial ends, the worse it stands for most of its epochs."""
    late = 1 / (1 + np.exp(-15 * (t / len(t) - 0.7)))
    end = 0.1 + 0.4 * a + 0.1 * draw.random()
    return (
        1.5 * np.exp(-5 * t / len(t))
        + (0.9 - 0.4 * a) * (1 - late)
        + end * late
        + draw.normal(0, 0.01, len(t))
    )


def heavy_tails(a: float, t: Floats, draw: Draw) -> Floats:
    """Errors of a Student distribution with one and a half degrees of freedom."""
    return (0.1 + a + _much(draw, 0.5, 0.4) * t**-0.7) * np.exp(0.05 * draw.standard_t(1.5, len(t)))


def spikes(a: float, t: Floats, draw: Draw) -> Floats:
    """One report in ten is far off."""
    far = (draw.random(len(t)) < 0.1) * np.exp(draw.normal(1, 1, len(t)))
    return 0.2 + a + np.exp(-0.4 * t) + far + draw.normal(0, 0.01, len(t))


def few_values(a: float, t: Floats, draw: Draw) -> Floats:
    """An accuracy over twenty samples."""
    return np.round(20 * exponential(a, t, draw)) / 20


def ceiling(a: float, t: Floats, draw: Draw) -> Floats:
    """An accuracy that more than half of the trials bring to 1."""
    curve = (1.4 - 0.8 * a) * (1 - np.exp(-_much(draw, -1, 0.7) * t)) + draw.normal(0, 0.005, len(t))
    return -np.clip(curve, 0, 1)


def huge(a: float, t: Floats, draw: Draw) -> Floats:
    """Losses in billions."""
    return 1e9 * power_law(a, t, draw)


def tiny_negative(a: float, t: Floats, draw: Draw) -> Floats:
    """Negative values of the size of a rounding error."""
    return 1e-9 * (exponential(a, t, draw) - 5)


def agents(a: float, t: Floats, draw: Draw) -> Floats:
    """Rewards that jump up at some time."""
    middle = draw.random() * len(t)
    return (
        500 - 700 * (1 - a) / (1 + np.exp(-(t - middle) / (0.1 * len(t) + 0.1))) + draw.normal(0, 30, len(t))
    )


def random_walks(a: float, t: Floats, draw: Draw) -> Floats:
    """Nothing is to be foreseen."""
    return np.cumsum(draw.normal(0, 1, len(t)))


def pure_noise(a: float, t: Floats, draw: Draw) -> Floats:
    """Nothing is learnt."""
    return draw.normal(0, 1, len(t))


def mostly_good(a: float, t: Floats, draw: Draw) -> Floats:
    """One in ten stands at chance, the others end close together."""
    if a > 0.9:
        return 0.9 + draw.normal(0, 0.002, len(t))
    fall = 0.8 * np.exp(-_much(draw, -0.5, 0.4) * t)
    return 0.05 + 0.03 * draw.random() + fall + draw.normal(0, 0.003, len(t))


def diverging(a: float, t: Floats, draw: Draw) -> Floats:
    """A third grow without end."""
    return 2.3 * np.exp(2 * t * draw.random()) if a > 0.67 else exponential(a, t, draw)


def slow_but_best(a: float, t: Floats, draw: Draw) -> Floats:
    """Three in ten begin far slower than the others, and end best."""
    slow = draw.random() < 0.3
    end, rate, height = (0.1 + 0.3 * a, 0.12, 2.0) if slow else (0.35 + 0.4 * a, 0.8, 1.5)
    return end + height * np.exp(-rate * t * (0.8 + 0.4 * draw.random())) + draw.normal(0, 0.01, len(t))


KINDS: tuple[Kind, ...] = (
    power_law, noisy_power_law, exponential, linear, late_learners, rate_steps, cycles, overfitting, crossing,
    heavy_tails, spikes, few_values, ceiling, huge, tiny_negative, agents, random_walks, pure_noise, mostly_good,
    diverging, slow_but_best,
)  # fmt: skip


def study(kind: Kind, trials: int, epochs: int, draw: Draw) -> RecordedStudy:
    """A study of one kind, in which every epoch takes a second."""
    t = np.arange(1, epochs + 1, dtype=np.float64)
    made = []
    for number in range(trials):
        a = float(draw.random())
        values = kind(a, t, draw)
        params = {f"x{i}": float(draw.random()) for i in range(4)}
        params["telling"] = 0.7 * a + 0.3 * float(draw.random())
        made.append(RecordedTrial(number, params, tuple(values.tolist()), tuple(t.tolist())))
    return of_trials(made, name=kind.__name__, maximize=False, epochs=epochs, value_of="last")


@dataclass(frozen=True, slots=True)
class Counted:
    """What became of the trials of some studies; shares of all trials, and of the time that they took."""

    stopped: float
    wrongly: float
    lost: float
    time: float


def count(kind: Kind, trials: int, epochs: int, repeats: int, profile: str = "akeso") -> Counted:
    """Replay ``repeats`` studies of a kind."""
    stopped = wrongly = lost = 0
    spent = 0.0
    for seed in range(repeats):
        draw = np.random.default_rng([seed, trials, epochs])
        made = study(kind, trials, epochs, draw)
        goal = goal_of(made)
        order = draw.permutation(trials).tolist()
        for one in simulate(made, ProfileRule(PROFILES[profile]), in_order(order)).ended:
            wrong = is_wrong(one, goal, made.maximize)
            stopped += one.verdict.action == "stop"
            wrongly += wrong and one.verdict.action == "stop"
            lost += wrong
            spent += one.spent
    total = trials * repeats
    return Counted(stopped / total, wrongly / total, lost / total, spent / (total * epochs))


def main(arguments: list[str] | None = None) -> None:
    """Print a table with a line for each kind, and their mean."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--kinds", nargs="*", choices=[kind.__name__ for kind in KINDS], help="all by default"
    )
    parser.add_argument("--profile", choices=sorted(PROFILES), default="akeso")
    for name, default in (("trials", 120), ("epochs", 20), ("repeats", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args(arguments)
    print("| kind | stopped | wrongly | lost | time |\n| --- | --- | --- | --- | --- |")
    rows = []
    for kind in KINDS:
        if given.kinds and kind.__name__ not in given.kinds:
            continue
        rows.append(count(kind, given.trials, given.epochs, given.repeats, given.profile))
        print(_line(kind.__name__.replace("_", " "), rows[-1]), flush=True)
    mean = [float(np.mean([getattr(row, name) for row in rows])) for name in Counted.__slots__]
    print(_line("mean", Counted(*mean)))


def _line(name: str, row: Counted) -> str:
    return f"| {name} | {row.stopped:.1%} | {row.wrongly:.2%} | {row.lost:.2%} | {row.time:.0%} |"


if __name__ == "__main__":
    main()
