"""Every generator of random numbers in reach: captured, restored, digested, seeded by key.

The global ones are Python's ``random``, NumPy's legacy global state, torch's CPU generator and one per CUDA
device. Private ones (``numpy.random.Generator`` and ``RandomState``, ``random.Random``, ``torch.Generator``)
are found by looking through the objects of a program, or registered by name.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch

from akeso.errors import BadInput
from akeso.replay import digests
from akeso.replay.keys import key, mix

Private: TypeAlias = np.random.Generator | np.random.RandomState | random.Random | torch.Generator
_WORD = torch.empty((), dtype=torch.int64)
_DRAWN = struct.Struct(">QdQ")
_MASK = (1 << 64) - 1
_KINDS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)


def is_generator(value: object) -> bool:
    """Tell whether a value is a private generator whose state can be captured."""
    return isinstance(value, _KINDS) and not isinstance(value, random.SystemRandom)


def seed_all(under: int) -> None:
    """Seed every global generator from one key: about fifteen microseconds, plus two per CUDA device."""
    random.seed(under)
    # NumPy's legacy seed is 32 bits; the key is mixed once more so that the streams have nothing in common.
    np.random.seed(mix(under) >> 32)
    torch.default_generator.manual_seed(under)
    for generator in cuda_generators():
        generator.manual_seed(under)


def cuda_generators() -> tuple[torch.Generator, ...]:
    """Return the generators of the CUDA devices, once CUDA is in use; none before."""
    if not torch.cuda.is_initialized():  # asking whether there is a device at all takes its time
        return ()
    return tuple(torch.cuda.default_generators)


def capture() -> dict[str, Any]:
    """Return the state of every global generator, as values :mod:`akeso.replay.state` can write."""
    return {
        "python": private_state(random._inst),
        "numpy": np.random.get_state(legacy=False),
        "torch": torch.get_rng_state(),
        "cuda": [generator.get_state() for generator in cuda_generators()],
    }


def restore(states: Mapping[str, Any]) -> None:
    """Put every global generator back to a captured state."""
    restore_private(random._inst, states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"].cpu())
    devices = cuda_generators() if states["cuda"] else ()
    for generator, state in zip(devices, states["cuda"], strict=False):
        generator.set_state(state.cpu())


def digest() -> str:
    """Return the digest of every global generator; nothing is drawn."""
    return digests.of(capture())


def sounding() -> str:
    """Draw one number from every global generator and return them as a digest.

    Ten times cheaper than :func:`digest`, and it moves the generators: for places where they are seeded anew
    right afterwards, or where every run draws alike.
    """
    data = _DRAWN.pack(random.getrandbits(64), np.random.random_sample(), _WORD.random_().item())
    # A CUDA generator lives on the host: its seed and offset are read without touching the device.
    for generator in cuda_generators():
        data += struct.pack(">QQ", generator.initial_seed() & _MASK, generator.get_offset())
    return f"{zlib.crc32(data, 1) << 32 | zlib.crc32(data):016x}"


def private_state(generator: Private) -> Any:
    """Return the state of one private generator as plain values."""
    if isinstance(generator, random.SystemRandom):
        raise BadInput("random.SystemRandom draws from the system and has no state; use random.Random(seed)")
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    if isinstance(generator, random.Random):
        version, words, gauss = generator.getstate()
        return {"version": version, "words": np.array(words, dtype=np.uint32), "gauss": gauss}
    return generator.get_state()


def restore_private(generator: Private, state: Any) -> None:
    """Put one private generator back to the state :func:`private_state` gave."""
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    elif isinstance(generator, random.Random):
        words = tuple(int(word) for word in state["words"])
        generator.setstate((int(state["version"]), words, state["gauss"]))
    else:
        generator.set_state(state.cpu())


def seed_private(generator: Private, under: int) -> None:
    """Seed one private generator from a key, in place."""
    if isinstance(generator, np.random.Generator):
        source: Any = generator.bit_generator
        if type(source) is np.random.PCG64:
            # The usual kind, five times quicker than through a seed sequence: its two numbers, the second odd.
            high, low = mix(under), mix(under ^ 0xA5A5A5A5)
            state: Any = {"state": high << 64 | low, "inc": (mix(high) << 64 | mix(low)) | 1}
            source.state = {"bit_generator": "PCG64", "state": state, "has_uint32": 0, "uinteger": 0}
        else:
            source.state = type(source)(under).state
    elif isinstance(generator, np.random.RandomState):
        generator.seed(mix(under) >> 32)
    elif isinstance(generator, random.Random):
        generator.seed(under)
    else:
        generator.manual_seed(under)


def find(value: object, name: str = "", depth: int = 5) -> Iterator[tuple[str, Private]]:
    """Yield the private generators reachable from an object, each with the path that leads to it.

    Attributes, list items and mapping values are followed, in their order, to a limited depth.

    >>> [name for name, _ in find({"augment": [np.random.default_rng(0)]}, "data")]
    ["data['augment'][0]"]
    """
    yield from _find(value, name, depth, set())


def _find(value: object, name: str, depth: int, seen: set[int]) -> Iterator[tuple[str, Private]]:
    if id(value) in seen or isinstance(value, str | bytes | int | float | torch.Tensor | np.ndarray | type):
        return
    seen.add(id(value))
    if is_generator(value):
        yield name, value  # type: ignore[misc]
        return
    if depth == 0:
        return
    if isinstance(value, Mapping):
        for number, (entry, item) in enumerate(list(value.items())[:1000]):
            # A key may be a parameter, and to print one takes longer than to search it.
            label = repr(entry) if isinstance(entry, str | int) else f"#{number}"
            yield from _find(item, f"{name}[{label}]", depth - 1, seen)
    elif isinstance(value, list | tuple):
        # Long lists are data (paths, labels); generators sit among a few transforms.
        for number, item in enumerate(value[:100]):
            yield from _find(item, f"{name}[{number}]", depth - 1, seen)
    else:
        for attribute, item in _attributes(value):
            yield from _find(item, f"{name}.{attribute}" if name else attribute, depth - 1, seen)
        # Closures and partials carry generators too: transform=lambda x: x + rng.normal()
        for attribute, item in _closed_over(value):
            yield from _find(item, f"{name}.{attribute}" if name else attribute, depth - 1, seen)


def _attributes(value: object) -> list[tuple[str, object]]:
    found = (
        list(getattr(value, "__dict__", {}).items()) if not callable(getattr(value, "__code__", None)) else []
    )
    for cls in type(value).__mro__:
        for slot in (
            cls.__dict__.get("__slots__", ()) if not isinstance(cls.__dict__.get("__slots__"), str) else ()
        ):
            if hasattr(value, slot) and not slot.startswith("__"):
                found.append((slot, getattr(value, slot)))
    return found if type(value).__module__ not in ("builtins", "types") or hasattr(value, "__code__") else []


def _closed_over(value: object) -> Iterator[tuple[str, object]]:
    code = getattr(value, "__code__", None)
    for variable, cell in zip(
        getattr(code, "co_freevars", ()), getattr(value, "__closure__", None) or (), strict=False
    ):
        try:
            yield variable, cell.cell_contents
        except ValueError:  # the variable is not bound yet
            continue
    owner = getattr(value, "__self__", None)
    if owner is not None and not isinstance(owner, type):
        yield "__self__", owner
    names = getattr(code, "co_names", ())
    space = getattr(value, "__globals__", {})
    for variable in names:
        if is_generator(space.get(variable)):
            yield variable, space[variable]
    for part in ("func", "args", "keywords"):
        if type(value).__name__ == "partial":
            yield part, getattr(value, part)


def step_key(seed: int, step: int, rank: int = 0) -> int:
    """Return the key under which the global generators of one step (of one virtual rank) are seeded."""
    return key(seed, "step", step, rank)


def sample_key(seed: int, epoch: int, index: int) -> int:
    """Return the key under which the augmentation of one sample in one epoch is drawn."""
    return key(seed, "sample", epoch, index)
