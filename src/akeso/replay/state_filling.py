"""Saved values put into live objects, each piece of memory once.

Who holds a list or a tensor under a name that nobody can find sees it come back only when the live object itself
is filled. But a fresh process may have one object, or one piece of memory, where the recorded one had come to
have several: ``best = model.state_dict()`` before the loop, and a copy of it later. What is filled already, or
belongs to what is tracked, is left as it is then, and the saved value takes its place in the variable.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from akeso.replay.state import is_code
from akeso.replay.state_records import attributes, is_frozen, is_record, put


class Filling:
    """Fills live objects with saved values; ``filled`` tensors, in their state already, are not written to.

    Objects whose identities are among the ``shared`` ones are taken as they are.
    """

    def __init__(self, shared: frozenset[int] = frozenset(), filled: Iterable[torch.Tensor] = ()) -> None:
        self._shared = shared
        self._memory = _Memory()
        #: Everything filled is kept, and thereby alive, so that no other object can take its number.
        self._filled: dict[int, Any] = {}
        for tensor in filled:
            if _has_memory(tensor):
                self._memory.add(tensor)

    def put_back(self, live: Any, saved: Any) -> Any:
        """Return the saved value, put into the live object where that can be done in place."""
        if id(saved) in self._shared or id(live) in self._filled:
            return saved
        if isinstance(live, torch.Tensor) and isinstance(saved, torch.Tensor):
            return self._tensor(live, saved)
        if isinstance(live, np.ndarray) and isinstance(saved, np.ndarray) and live.shape == saved.shape:
            return self._array(live, saved)
        if isinstance(live, dict) and isinstance(saved, dict):
            return self._mapping(live, saved)
        if isinstance(live, list) and isinstance(saved, list):
            self._filled[id(live)] = live
            known = live + [None] * len(saved)
            live[:] = [self.put_back(old, item) for old, item in zip(known, saved, strict=False)]
            return live
        if isinstance(live, deque | set) and type(live) is type(saved):
            self._filled[id(live)] = live
            live.clear()
            live.extend(saved) if isinstance(live, deque) else live.update(saved)
            return live
        if is_record(saved) and type(live) is type(saved) and not is_frozen(live):
            self._filled[id(live)] = live
            state = attributes(saved)
            return put(
                live, {name: self.put_back(getattr(live, name, None), item) for name, item in state.items()}
            )
        return saved

    def _tensor(self, live: torch.Tensor, saved: torch.Tensor) -> torch.Tensor:
        if live.shape != saved.shape or live.dtype != saved.dtype or live.device != saved.device:
            return saved
        if _has_memory(live):
            if self._memory.meets(live):
                # The whole of what is filled would have come as that itself, and a part of it has its numbers.
                return saved if self._memory.has(live) or not torch.equal(live, saved) else live
            self._keep(live)
        with torch.no_grad():
            return live.copy_(saved)

    def _array(self, live: np.ndarray[Any, Any], saved: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if live.size:
            if self._memory.meets(live):
                return saved if self._memory.has(live) or live.tobytes() != saved.tobytes() else live
            self._keep(live)
        live[...] = saved
        return live

    def _keep(self, live: torch.Tensor | np.ndarray[Any, Any]) -> None:
        self._memory.add(live)
        self._filled[id(live)] = live

    def _mapping(self, live: dict[Any, Any], saved: dict[Any, Any]) -> dict[Any, Any]:
        self._filled[id(live)] = live
        merged = {entry: self.put_back(live.get(entry), item) for entry, item in saved.items()}
        # Functions are code and in no snapshot; they stay where they are.
        code = {entry: item for entry, item in live.items() if entry not in saved and is_code(item)}
        order = [entry for entry in live if entry in merged or entry in code]
        live.clear()
        if len(order) == len(merged) + len(code):
            live.update({entry: (merged if entry in merged else code)[entry] for entry in order})
        else:
            live.update({**merged, **code})
        return live


def put_back(live: Any, saved: Any) -> Any:
    """Return the saved value, put into the live object where that can be done in place."""
    return Filling().put_back(live, saved)


class _Memory:
    """Stretches of memory, and the tensors and arrays that look at them."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._looks: set[tuple[Any, ...]] = set()

    def add(self, part: torch.Tensor | np.ndarray[Any, Any]) -> None:
        """Add the memory between the first and the last number of a tensor or an array."""
        self._looks.add(_look(part))
        begin, end = _extent(part)
        first, last = bisect_right(self._ends, begin), bisect_left(self._begins, end)
        if first < last:
            begin, end = min(begin, self._begins[first]), max(end, self._ends[last - 1])
        self._begins[first:last], self._ends[first:last] = [begin], [end]

    def meets(self, part: torch.Tensor | np.ndarray[Any, Any]) -> bool:
        """Tell whether a part of this memory lies between the first and the last number of another."""
        begin, end = _extent(part)
        return bisect_right(self._ends, begin) < bisect_left(self._begins, end)

    def has(self, part: torch.Tensor | np.ndarray[Any, Any]) -> bool:
        """Tell whether what was added looks at the same numbers in the same way."""
        return _look(part) in self._looks


def _has_memory(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and tensor.numel() > 0 and tensor.device.type != "meta"


def _look(part: torch.Tensor | np.ndarray[Any, Any]) -> tuple[Any, ...]:
    return (_address(part), tuple(part.shape), _strides(part))


def _extent(part: torch.Tensor | np.ndarray[Any, Any]) -> tuple[int, int]:
    ways = [(size - 1) * stride for size, stride in zip(part.shape, _strides(part), strict=True)]
    begin = _address(part) + sum(way for way in ways if way < 0)
    return begin, begin + sum(abs(way) for way in ways) + _item_size(part)


def _address(part: torch.Tensor | np.ndarray[Any, Any]) -> int:
    return part.data_ptr() if isinstance(part, torch.Tensor) else int(part.__array_interface__["data"][0])


def _strides(part: torch.Tensor | np.ndarray[Any, Any]) -> tuple[int, ...]:
    if isinstance(part, np.ndarray):
        return part.strides
    return tuple(stride * part.element_size() for stride in part.stride())


def _item_size(part: torch.Tensor | np.ndarray[Any, Any]) -> int:
    return part.element_size() if isinstance(part, torch.Tensor) else part.itemsize
