"""Digests of live state: short, fast, and different wherever one bit is different.

On the CPU a digest is a CRC-32 over the bytes as they lie in memory, without a copy. On an accelerator the
bytes are reduced where they are, as sums of integers weighted by their position (integer sums are the same in
any order), and one number per group of tensors is copied back; :class:`Digest` waits for that copy only when
it is read. Both are chained with type and shape, so that moving a value, or reshaping a tensor, is a
difference. These digests find accidents, not forgeries; files are sealed with BLAKE2 (see
:mod:`akeso.replay.snapshot`).
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from akeso.replay.keys import numbers

_BLOCK = 1 << 16
_SIZED = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Digest:
    """A digest that may still be on its way from the device; ``str()`` gives sixteen hexadecimal digits."""

    __slots__ = ("_crc", "_event", "_sums")

    def __init__(self, crc: int, sums: torch.Tensor | None = None) -> None:
        self._crc = crc
        self._sums: torch.Tensor | None = None
        self._event: torch.cuda.Event | None = None
        if sums is not None:
            if sums.device.type == "cuda":
                # Into pinned memory without waiting; the event says when it has arrived.
                self._sums = torch.empty(sums.shape, dtype=sums.dtype, pin_memory=True)
                self._sums.copy_(sums, non_blocking=True)
                self._event = torch.cuda.Event()
                self._event.record(torch.cuda.current_stream(sums.device))
            else:
                self._sums = sums.cpu()

    def __str__(self) -> str:
        if self._sums is None:
            return f"{self._crc:016x}"
        if self._event is not None:
            self._event.synchronize()
            self._event = None
        low = zlib.crc32(self._sums.numpy().tobytes(), self._crc & 0xFFFFFFFF)
        return f"{((self._crc & 0xFFFFFFFF) << 32) | low:016x}"


def of_tensors(tensors: Iterable[torch.Tensor | None]) -> Digest:
    """Return one digest of many tensors in their order; ``None`` (a missing gradient) counts as itself."""
    form, data = 0, 0
    remote: list[torch.Tensor] = []
    for tensor in tensors:
        if tensor is None:
            form = zlib.crc32(b"none", form)
            continue
        tensor = _plain(tensor.detach())
        form = zlib.crc32(f"{tensor.dtype}{tuple(tensor.shape)}{tensor.device.type}".encode(), form)
        if tensor.device.type == "cpu":
            data = _crc(tensor, data)
        elif tensor.device.type != "meta":
            remote.append(tensor)
    crc = (form << 32) | data
    return Digest(crc, _weighted(remote)) if remote else Digest(crc)


def of(value: Any) -> str:
    """Return the digest of nested state: tensors, arrays, generators, modules, containers, plain values."""
    return f"{_nested(value, 0):016x}"


def of_numbers(values: Sequence[int]) -> str:
    """Return the digest of whole numbers, such as the indices of the samples of a batch."""
    return f"{(len(values) & 0xFFFFFFFF) << 32 | zlib.crc32(np.array(values, dtype=np.int64).data):016x}"


def bits(value: Any) -> str:
    """Return the exact bits of a number (a loss) as hexadecimal digits of its double."""
    if isinstance(value, torch.Tensor):
        value = value.detach().to("cpu", torch.float64)
        value = value.sum().item() if value.numel() != 1 else value.item()
    return struct.pack(">d", float(value)).hex()


def from_bits(text: str) -> float:
    """Return the number whose :func:`bits` are given."""
    return float(struct.unpack(">d", bytes.fromhex(text))[0])


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.resolve_neg()


def _crc(tensor: torch.Tensor, start: int) -> int:
    if tensor.numel() == 0:
        return start
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    if tensor.dtype not in (torch.float32, torch.float64, torch.int64, torch.uint8):
        tensor = tensor.reshape(-1).view(torch.uint8)
    return zlib.crc32(tensor.numpy(), start)  # type: ignore[arg-type]


_WEIGHTS: dict[torch.device, torch.Tensor] = {}


def _weights(device: torch.device) -> torch.Tensor:
    """Return the fixed odd weights on a device. A cache of constants: it never changes a result."""
    found = _WEIGHTS.get(device)
    if found is None:
        table = (numbers(_BLOCK, 0xD16E57) | np.uint64(1)).view(np.int64)
        found = _WEIGHTS[device] = torch.from_numpy(table).to(device)
    return found


def _weighted(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return position-weighted sums of the bits of tensors on one or more devices, one number per group.

    Tensors of one device and one element size are joined, so that hundreds of small parameters cost a handful
    of kernels.
    """
    groups: dict[tuple[torch.device, int], list[torch.Tensor]] = {}
    for tensor in tensors:
        if tensor.numel():
            groups.setdefault((tensor.device, tensor.element_size()), []).append(tensor)
    found = []
    home = tensors[0].device
    for (device, size), members in groups.items():
        total = torch.zeros((), dtype=torch.int64, device=device)
        flat = [member.contiguous().view(-1).view(_SIZED[size]) for member in members]
        for number, joined in enumerate(_joined(flat)):
            total = total * 0x5851F42D4C957F2D + _block_sums(joined, _weights(device)) + number
        found.append(total.to(home))
    return torch.stack(found) if found else torch.zeros(1, dtype=torch.int64, device=home)


def _joined(flat: list[torch.Tensor], limit: int = 1 << 24) -> Iterable[torch.Tensor]:
    """Yield the words of tensors in pieces of bounded size: the sums need eight bytes of room per word."""
    waiting: list[torch.Tensor] = []
    count = 0
    for tensor in flat:
        for piece in torch.split(tensor, limit):
            if waiting and count + piece.numel() > limit:
                yield torch.cat(waiting)
                waiting, count = [], 0
            waiting.append(piece)
            count += piece.numel()
    if waiting:
        yield torch.cat(waiting)


def _block_sums(words: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    blocks = -(-words.numel() // _BLOCK)
    padded = torch.zeros(blocks * _BLOCK, dtype=torch.int64, device=words.device)
    padded[: words.numel()] = words
    table = padded.view(blocks, _BLOCK)
    # The upper half of a word is folded down: its top bit alone would weigh the same wherever it is.
    table = table + (table >> 32) * 0x2545F4914F6CDD1D
    rows = (table * weights).sum(1)
    places = weights[torch.arange(blocks, device=words.device) % _BLOCK] * (
        torch.arange(blocks, device=words.device) // _BLOCK * 2 + 1
    )
    return ((rows ^ (rows >> 29)) * places).sum()


def _nested(value: Any, start: int) -> int:
    """Chain a value of any kind to a running digest of 64 bits."""
    if isinstance(value, torch.Tensor):
        return _chain(start, b"tensor", str(of_tensors([value])).encode())
    if isinstance(value, np.ndarray):
        body = np.ascontiguousarray(value)
        raw = repr(body.tolist()).encode() if body.dtype == object else body.tobytes()
        return _chain(start, f"array{body.dtype}{body.shape}".encode(), raw)
    if isinstance(value, Mapping):
        start = _chain(start, b"mapping", str(len(value)).encode())
        for name, item in value.items():
            start = _nested(item, _nested(name, start))
        return start
    if isinstance(value, list | tuple):
        start = _chain(start, b"sequence", str(len(value)).encode())
        for item in value:
            start = _nested(item, start)
        return start
    if isinstance(value, set | frozenset):
        # The order of a set is not part of its value.
        return _chain(start, b"set", str(sorted(_nested(item, 0) for item in value)).encode())
    if isinstance(value, float | np.floating):
        return _chain(start, b"float", struct.pack(">d", float(value)))
    if isinstance(value, torch.Generator):
        return _nested(value.get_state(), _chain(start, b"generator", b"torch"))
    if isinstance(value, np.random.Generator):
        return _nested(value.bit_generator.state, _chain(start, b"generator", b"numpy"))
    if isinstance(value, np.random.RandomState):
        return _nested(value.get_state(legacy=False), _chain(start, b"generator", b"numpy-legacy"))
    if isinstance(value, random.Random):
        return _chain(start, b"generator", repr(value.getstate()).encode())
    state = getattr(value, "state_dict", None)
    if callable(state):
        return _nested(state(), _chain(start, b"state", type(value).__qualname__.encode()))
    return _chain(start, type(value).__qualname__.encode(), repr(value).encode())


def _chain(start: int, kind: bytes, body: bytes) -> int:
    high = zlib.crc32(kind, start >> 32)
    return (high << 32) | zlib.crc32(body, zlib.crc32(kind, start & 0xFFFFFFFF))
