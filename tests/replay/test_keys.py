"""Keys: the same address gives the same bits, another address others, on every platform and version."""

from __future__ import annotations

import numpy as np

from akeso.replay.keys import extend, key, mix, mixed, numbers, permutation


def test_the_values_never_change() -> None:
    # Written down once: a change here would make every recorded run unrepeatable.
    assert mix(0) == 0xE220A8397B1DCDAF
    assert key(0, "order", 3) == key(0, "order", 3)
    assert permutation(10, 3).tolist() == [2, 5, 3, 7, 1, 4, 9, 0, 8, 6]


def test_order_kind_and_value_of_the_parts_matter() -> None:
    found = {key(0), key(1), key(0, 1), key(0, 1, 2), key(0, 2, 1), key(0, "1"), key(0, "1", 2), key(0, -1)}
    assert len(found) == 8


def test_a_key_can_be_built_in_two_steps() -> None:
    assert extend(key(5, "sample", 2), 77) == key(5, "sample", 2, 77)


def test_the_vector_form_is_the_scalar_form() -> None:
    values = np.arange(50, dtype=np.uint64)
    assert mixed(values).tolist() == [mix(int(value)) for value in values]


def test_every_permutation_is_whole_and_keyed() -> None:
    for count in (1, 2, 1000):
        assert sorted(permutation(count, 9).tolist()) == list(range(count))
    assert permutation(1000, 1).tolist() != permutation(1000, 2).tolist()


def test_numbers_are_spread_evenly() -> None:
    drawn = numbers(20_000, key(0, "spread")).astype(np.float64) / 2.0**64
    assert abs(drawn.mean() - 0.5) < 0.02
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.05
