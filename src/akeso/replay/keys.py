"""Random numbers as pure functions of what they belong to.

A key is 64 bits derived from the seed of a run and the names and numbers of the place where randomness is
needed: ``key(seed, "order", epoch)`` for the order of an epoch, ``key(seed, "sample", epoch, index)`` for the
augmentation of one sample, ``key(seed, "step", step)`` for dropout. Nothing is ever "drawn to get there", so
a run can begin anywhere, on any number of workers or processes, and find the same numbers.

The mixing is SplitMix64, written out here so that no version of any library can change it.

>>> key(0, "order", 3) == key(0, "order", 3), key(0, "order", 3) == key(0, "order", 4)
(True, False)
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def mix(value: int) -> int:
    """Return SplitMix64's output for one 64-bit value; a bijection."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


@lru_cache(maxsize=4096)
def _word(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def key(seed: int, *parts: int | str) -> int:
    """Derive 64 bits from a seed and the parts of an address; order and kind of the parts matter."""
    return extend(mix(seed & _MASK), *parts)


def extend(under: int, *parts: int | str) -> int:
    """Go on from a key: ``extend(key(seed, a), b)`` is ``key(seed, a, b)``, and cheaper where a stays."""
    for part in parts:
        # Words go through a hash and numbers through the mixer, so that "3" and 3 are different places.
        under = mix(under ^ (_word(part) if isinstance(part, str) else mix(part & _MASK)))
    return under


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return :func:`mix` of every element."""
    with np.errstate(over="ignore"):
        out = values + np.uint64(_GOLDEN)
        out = (out ^ (out >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        out = (out ^ (out >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(out ^ (out >> np.uint64(31)), dtype=np.uint64)


def numbers(count: int, under: int) -> NDArray[np.uint64]:
    """Return ``count`` independent 64-bit numbers under a key: element i depends on the key and i alone."""
    with np.errstate(over="ignore"):
        steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        return mixed(steps + np.uint64(under & _MASK))


def permutation(count: int, under: int) -> NDArray[np.int64]:
    """Return the order of ``count`` things under a key.

    The things are sorted by their own numbers; SplitMix64 being a bijection there are no ties, and the result
    is the same with every version of NumPy.
    """
    return np.argsort(numbers(count, under), kind="stable").astype(np.int64)
