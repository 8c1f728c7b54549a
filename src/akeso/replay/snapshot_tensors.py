"""Tensors as one safetensors file, laid out before they are copied.

A :class:`Layout` fixes where every tensor lies in one block of memory; copying the tensors into that block is
all that training has to wait for. The block is the data section of the file as it stands, so the background
thread has nothing left to do but hash and write. Tensors on an accelerator are copied into pinned memory on
the stream that computes them, so the copy sees the values of this step and nobody waits for it here.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from akeso.errors import BadInput

NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.uint16: "U16",
    torch.uint32: "U32",
    torch.uint64: "U64",
}
_SMALL = 4096
"""Bytes up to which tensors are copied many at a time."""
_JOINED = {
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
}
_BYTES = NAMES[torch.uint8]
"""What tensors are in the file whose type the format has no name for."""
_DTYPES = {name: dtype for dtype, name in NAMES.items()}


class Layout:
    """Where each tensor lies in the data section: by type, the largest elements first so that all are aligned.

    Of each type small tensors come first, one after another, so that many of them can be copied at once.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.places: dict[str, tuple[int, int]] = {}
        kinds = sorted(
            {tensor.dtype for tensor in tensors.values()}, key=lambda kind: (-kind.itemsize, str(kind))
        )
        order = {kind: number for number, kind in enumerate(kinds)}
        sizes = {name: tensor.nbytes for name, tensor in tensors.items()}
        self._entries: dict[str, dict[str, Any]] = {}
        offset = 0
        for name in sorted(tensors, key=lambda name: (order[tensors[name].dtype], sizes[name] > _SMALL)):
            tensor, end = tensors[name], offset + sizes[name]
            self.places[name] = (offset, end)
            self._entries[name] = {
                "dtype": NAMES.get(tensor.dtype, _BYTES),
                "shape": list(tensor.shape) if tensor.dtype in NAMES else [sizes[name]],
                "data_offsets": [offset, end],
            }
            offset = end
        self.bytes = offset

    @property
    def header(self) -> bytes:
        """The first bytes of the file; made when they are asked for, as of many tensors that takes its time."""
        text = json.dumps(self._entries, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text


class Block:
    """One block of memory that takes copies of tensors, and is used again for the next snapshot."""

    def __init__(self) -> None:
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._events: list[torch.cuda.Event] = []

    def take(self, layout: Layout, tensors: Mapping[str, torch.Tensor]) -> None:
        """Copy tensors to their places. Copies from an accelerator may still be under way on return."""
        remote = {tensor.device for tensor in tensors.values() if tensor.is_cuda}
        if self._memory.numel() < layout.bytes or (remote and not self._memory.is_pinned()):
            self._memory = torch.empty(layout.bytes, dtype=torch.uint8, pin_memory=bool(remote))
        small: list[torch.Tensor] = []
        first = last = 0
        for name, (start, end) in layout.places.items():
            tensor = tensors[name]
            if not 0 < end - start <= _SMALL or tensor.dtype not in _JOINED or tensor.device.type != "cpu":
                if end > start:
                    self._memory[start:end].view(tensor.dtype).view(tensor.shape).copy_(
                        tensor, non_blocking=True
                    )
                continue
            if small and (small[0].dtype != tensor.dtype or last != start):
                self._join(small, first, last)
                small = []
            if not small:
                first = start
            small.append(tensor.reshape(-1))
            last = end
        self._join(small, first, last)
        for device in remote:
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(device))
            self._events.append(event)

    def _join(self, small: list[torch.Tensor], start: int, end: int) -> None:
        """Copy tensors of one type to places that follow each other: a tenth of the time of single copies."""
        if small:
            torch.cat(small, out=self._memory[start:end].view(small[0].dtype))

    def data(self, layout: Layout) -> memoryview:
        """Return the bytes, once every copy has arrived."""
        for event in self._events:
            event.synchronize()
        self._events.clear()
        return memoryview(self._memory.numpy()[: layout.bytes])  # type: ignore[arg-type]


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Read a safetensors file into tensors on the CPU."""
    data = np.fromfile(path, dtype=np.uint8)
    if data.size < 8:
        raise BadInput(f"{path} is cut short: it has {data.size} bytes")
    (length,) = struct.unpack("<Q", data[:8].tobytes())
    header = json.loads(data[8 : 8 + length].tobytes())
    body = torch.from_numpy(data)[8 + length :]
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end = entry["data_offsets"]
        dtype = _DTYPES[entry["dtype"]]
        piece = body[start:end]
        # An empty slice has no alignment to speak of; view() would still insist on one.
        flat = piece.view(dtype) if end > start else torch.empty(0, dtype=dtype)
        found[name] = flat.view(entry["shape"])
    return found
