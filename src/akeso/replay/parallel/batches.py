"""Cutting a batch of any common shape into the samples of one virtual rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from akeso.errors import BadInput


def batch_length(batch: Any) -> int:
    """The number of samples in a batch: the first dimension of the first tensor or array found in it."""
    length = _length(batch)
    if length is None:
        raise BadInput(
            f"no tensor was found in the batch ({type(batch).__name__}), so its samples cannot be counted; "
            "cut it yourself with virtual_slices and go through vp.ranks"
        )
    return length


def cut(batch: Any, part: slice, length: int) -> Any:
    """The samples ``part`` of a batch of ``length`` samples; what has no sample dimension is passed whole.

    Tensors and arrays are cut along their first dimension; tuples, lists and mappings of such are cut inside;
    a list of ``length`` other things (texts, paths) is cut itself.
    """
    if isinstance(batch, torch.Tensor | np.ndarray):
        if batch.ndim == 0:
            return batch
        if batch.shape[0] != length:
            raise BadInput(
                f"the batch has {length} samples, but a tensor in it has {batch.shape[0]} along its first "
                f"dimension (shape {tuple(batch.shape)}); cut the batch yourself with virtual_slices"
            )
        return batch[part]
    if isinstance(batch, Mapping):
        items = {key: cut(value, part, length) for key, value in batch.items()}
        return items if type(batch) is dict else _rebuilt(batch, items)
    if isinstance(batch, tuple | list):
        if _length(batch) is None and len(batch) == length:
            return batch[part]
        values = [cut(value, part, length) for value in batch]
        if hasattr(batch, "_fields"):
            return type(batch)(*values)
        return type(batch)(values)
    return batch


def _length(batch: Any) -> int | None:
    if isinstance(batch, torch.Tensor | np.ndarray):
        return int(batch.shape[0]) if batch.ndim else None
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, tuple | list):
        return next((found for value in batch if (found := _length(value)) is not None), None)
    return None


def _rebuilt(batch: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    """A mapping of the same kind, such as the encoding of a tokenizer; a plain dict where that fails."""
    try:
        return type(batch)(items)  # type: ignore[call-arg]
    except TypeError:
        return items
