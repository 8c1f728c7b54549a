"""Trainings side by side in threads: each watch hears of its own."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

import akeso
from akeso.torch.watching import watch_everything


def _train(steps: int, together: threading.Barrier | None = None, level: float = 1.0) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(steps):
        if together is not None:
            together.wait(30)
        optimizer.zero_grad()
        (nn.functional.mse_loss(model(torch.randn(8, 4)), torch.zeros(8, 1)) * 0 + level).backward()
        optimizer.step()


def test_watches_in_two_threads_hear_of_their_own_training() -> None:
    together = threading.Barrier(2)
    losses: dict[float, list[float]] = {}

    def run(level: float) -> None:
        with akeso.watch() as watch:
            _train(40, together, level)
        losses[level] = watch.history.series("loss").values.tolist()

    threads = [threading.Thread(target=run, args=(level,)) for level in (1.0, 2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert losses == {1.0: [pytest.approx(1.0)] * 40, 2.0: [pytest.approx(2.0)] * 40}


def test_a_training_in_a_thread_where_nobody_listens_is_heard() -> None:
    with watch_everything() as watch:
        thread = threading.Thread(target=_train, args=(20,))
        thread.start()
        thread.join(60)
    assert watch.history.steps == 20
