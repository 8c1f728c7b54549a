"""Studies made up to be like real ones: chance-level failures, slow starters, noise, ceilings."""

from __future__ import annotations

import numpy as np

from akeso.search.recorded import RecordedStudy, RecordedTrial, of_trials


def accuracy_study(trials: int, seed: int, epochs: int = 20, noise: float = 0.01) -> RecordedStudy:
    """Accuracies between chance (0.1) and about 0.8; a third never leaves chance, some start late."""
    draw = np.random.default_rng(seed)
    t = np.arange(1, epochs + 1)
    made = []
    for number in range(trials):
        final = 0.1 + 0.7 * draw.beta(2, 2.2)
        if draw.random() < 0.33:
            curve = np.full(epochs, 0.1)
        else:
            rate, late = np.exp(draw.normal(-1.2, 0.6)), draw.integers(0, 8) if draw.random() < 0.15 else 0
            curve = 0.1 + (final - 0.1) * (1 - np.exp(-rate * np.maximum(t - late, 0) ** 0.8))
        values = np.clip(curve + draw.normal(0, noise, epochs), 0, 1)
        seconds = np.cumsum(np.full(epochs, np.exp(draw.normal(0, 0.5))))
        made.append(
            RecordedTrial(number, {"x": float(final)}, tuple(values.tolist()), tuple(seconds.tolist()))
        )
    return of_trials(made, maximize=True, epochs=epochs)


def loss_study(trials: int, seed: int, epochs: int = 20, tail: float = 3.0) -> RecordedStudy:
    """Losses over two orders of magnitude with heavy-tailed noise, as of a forecasting task."""
    draw = np.random.default_rng(seed)
    t = np.arange(1, epochs + 1)
    made = []
    for number in range(trials):
        floor, start = np.exp(draw.normal(-1.0, 0.5)), np.exp(draw.normal(1.0, 0.5))
        power = np.exp(draw.normal(0.0, 0.4))
        curve = floor + start * t**-power
        values = curve * np.exp(0.02 * draw.standard_t(tail, epochs))
        seconds = np.cumsum(np.full(epochs, np.exp(draw.normal(0, 0.7))))
        made.append(
            RecordedTrial(number, {"x": float(floor)}, tuple(values.tolist()), tuple(seconds.tolist()))
        )
    return of_trials(made, maximize=False, epochs=epochs)


def crossing_study(trials: int, seed: int, epochs: int = 20, maximize: bool = False) -> RecordedStudy:
    """Curves that cross: the slower a trial starts, the better it tends to end."""
    draw = np.random.default_rng(seed)
    t = np.arange(1, epochs + 1) / epochs
    made = []
    for number in range(trials):
        slow = draw.random()
        end = 1.0 - 0.5 * slow + 0.3 * draw.random()
        curve = end + (2.5 - end) * np.exp(-t * np.exp(2.3 - 1.2 * slow))
        values = (curve + draw.normal(0, 0.01, epochs)) * (-1.0 if maximize else 1.0)
        seconds = np.cumsum(np.full(epochs, np.exp(draw.normal(0, 0.5))))
        made.append(
            RecordedTrial(number, {"x": float(slow)}, tuple(values.tolist()), tuple(seconds.tolist()))
        )
    return of_trials(made, maximize=maximize, epochs=epochs)
