"""Generators: captured and restored to the bit, seeded by key, found wherever a program hides them."""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np
import pytest
import torch

from akeso.errors import BadInput
from akeso.replay import generators
from akeso.replay.state import pack, unpack

PRIVATE = [
    lambda: np.random.default_rng(1),
    lambda: np.random.Generator(np.random.Philox(1)),
    lambda: np.random.RandomState(1),
    lambda: random.Random(1),
    lambda: torch.Generator().manual_seed(1),
]


def _draw(generator: Any) -> list[float]:
    if isinstance(generator, torch.Generator):
        return torch.randn(3, generator=generator).tolist()
    if isinstance(generator, random.Random):
        return [generator.gauss(0, 1) for _ in range(3)]
    return generator.normal(size=3).tolist()


def _draw_globals() -> list[Any]:
    return [random.gauss(0, 1), float(np.random.randn()), torch.randn(2).tolist()]


def test_globals_come_back_through_a_written_state() -> None:
    generators.seed_all(7)
    _draw_globals()
    tree, tensors = pack(generators.capture())
    before = generators.digest()
    expected = _draw_globals()
    assert generators.digest() != before
    generators.restore(unpack(tree, tensors))
    assert generators.digest() == before
    assert _draw_globals() == expected


@pytest.mark.parametrize("make", PRIVATE)
def test_private_ones_come_back_and_are_seeded(make: Any) -> None:
    generator = make()
    _draw(generator)
    tree, tensors = pack(generators.private_state(generator))
    expected = _draw(generator)
    generators.restore_private(generator, unpack(tree, tensors))
    assert _draw(generator) == expected
    generators.seed_private(generator, 5)
    first = _draw(generator)
    generators.seed_private(generator, 5)
    assert _draw(generator) == first
    generators.seed_private(generator, 6)
    assert _draw(generator) != first


def test_a_seeded_pcg64_is_even() -> None:
    rng = np.random.default_rng()
    firsts = []
    for number in range(2000):
        generators.seed_private(rng, number)
        firsts.append(rng.random())
    assert abs(float(np.mean(firsts)) - 0.5) < 0.03


def test_a_sounding_tells_whether_anything_was_drawn() -> None:
    def after(draw: Any) -> str:
        generators.seed_all(3)
        draw()
        return generators.sounding()

    quiet = after(lambda: None)
    assert quiet == after(lambda: None)
    for draw in (random.random, np.random.rand, lambda: torch.rand(1)):
        assert after(draw) != quiet


class _Augment:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.steps = [{"flip": random.Random(1)}]


def test_they_are_found_in_attributes_containers_closures_and_partials() -> None:
    hidden = torch.Generator()

    def transform(x: Any) -> Any:
        return torch.rand(1, generator=hidden)

    found = dict(
        generators.find([_Augment(), transform, functools.partial(max, np.random.RandomState(1))], "d")
    )
    assert list(found) == ["d[0].rng", "d[0].steps[0]['flip']", "d[1].hidden", "d[2].args[0]"]


def test_the_systems_generator_is_refused() -> None:
    assert not generators.is_generator(random.SystemRandom())
    with pytest.raises(BadInput, match="no state"):
        generators.private_state(random.SystemRandom())
