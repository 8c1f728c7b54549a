"""Digests: one changed bit, a moved value, another shape or type is a difference; nothing else is."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from akeso.replay import digests


def _both(tensor: torch.Tensor) -> tuple[str, list[int]]:
    """The digest of the CPU and the sums an accelerator would compute."""
    return str(digests.of_tensors([tensor])), digests._weighted([tensor]).tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8])
def test_one_bit_is_a_difference(dtype: torch.dtype) -> None:
    values = torch.arange(70_000).remainder(100).to(dtype)
    words = values.clone().view(torch.uint8)
    for place in (0, 7, 65_536, words.numel() - 1):
        for bit in (1, 128):
            changed = words.clone()
            changed[place] ^= bit
            now, then = _both(changed.view(dtype)), _both(values)
            assert now[0] != then[0]
            assert now[1] != then[1]


def test_signs_that_change_place_are_a_difference() -> None:
    values = torch.ones(1000)
    left, right = values.clone(), values.clone()
    left[[1, 3]] *= -1
    right[[5, 7]] *= -1
    assert _both(left)[0] != _both(right)[0]
    assert _both(left)[1] != _both(right)[1]


def test_shape_type_and_order_count_and_strides_do_not() -> None:
    one, two = torch.zeros(2, 3), torch.ones(2, 3)
    assert str(digests.of_tensors([one])) != str(digests.of_tensors([one.view(3, 2)]))
    assert str(digests.of_tensors([one])) != str(digests.of_tensors([one.int()]))
    assert str(digests.of_tensors([one, two])) != str(digests.of_tensors([two, one]))
    assert str(digests.of_tensors([one, None])) != str(digests.of_tensors([None, one]))
    image = torch.randn(2, 3, 4, 4)
    assert str(digests.of_tensors([image])) == str(
        digests.of_tensors([image.to(memory_format=torch.channels_last)])
    )


def test_nested_state_is_told_apart() -> None:
    states = [
        {"a": [1, 2.0, None, torch.zeros(2)]},
        {"a": [1, 2.0, None, torch.zeros(3)]},
        {"a": [1, 2, None, torch.zeros(2)]},
        {"a": (np.zeros(2), {"x"})},
        {"a": (np.zeros(2), {"y"})},
        random.Random(1),
        random.Random(2),
        torch.Generator().manual_seed(1),
        np.random.default_rng(1),
    ]
    assert len({digests.of(state) for state in states}) == len(states)
    assert digests.of({1, 2, 3}) == digests.of({3, 2, 1})


def test_bits_of_a_loss_come_back() -> None:
    for value in (0.1, -0.0, 1e-310, float("inf")):
        assert digests.from_bits(digests.bits(value)) == value
    assert digests.bits(0.0) != digests.bits(-0.0)
    assert digests.bits(torch.tensor(0.1)) == digests.bits(float(torch.tensor(0.1)))
