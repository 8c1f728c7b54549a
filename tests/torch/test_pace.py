"""What a look costs on a card, told from the lengths of steps."""

from __future__ import annotations

import random

import pytest

from akeso.torch.pace import Pace


def _told(cost: float, own: float, wait: float, seed: int = 0) -> float:
    """The mean cost that is told of 100 looks, every eighth step, where other work sometimes holds the card."""
    draw = random.Random(seed)
    pace, now, told = Pace(), 0.0, []
    pace.restart(now, 0)
    for step in range(1, 801):
        # The noise of one step; a single one in twenty has to wait for somebody else.
        now += 0.01 + draw.gauss(0, 0.0002) + (wait if draw.random() < 0.05 else 0.0)
        if step % 8 == 0:
            now += cost
            told.append(pace.look_cost(now, own))
            pace.restart(now, step)
        elif step % 8 == 7:
            pace.plain(now, step)
    return sum(told) / len(told)


def test_kernels_that_run_later_are_seen_in_the_length_of_the_step() -> None:
    assert _told(cost=0.004, own=0.0005, wait=0.0) == pytest.approx(0.004, rel=0.25)


def test_waiting_for_a_full_queue_is_not_counted() -> None:
    assert _told(cost=0.001, own=0.008, wait=0.0) < 0.002


def test_others_on_the_card_are_not_put_down_to_looking() -> None:
    assert _told(cost=0.001, own=0.001, wait=0.1) < 0.002


def test_until_there_is_enough_to_compare_with_the_own_time_counts() -> None:
    pace = Pace()
    assert pace.look_cost(1.0, 0.25) == 0.25
