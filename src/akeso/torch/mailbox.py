"""From the device to the host: one copy, no sync, read later."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch

Tag = Hashable
#: What is delivered: a number for a zero-dimensional tensor, a list for a vector.
Delivery = dict[Tag, Any]
Receiver = Callable[[Delivery], None]


@dataclass(slots=True)
class _Parcel:
    receiver: Receiver
    delivery: Delivery
    waiting: list[tuple[torch.Tensor, list[tuple[Tag, int]]]]  # host tensor, (tag, length; -1 = scalar)
    ready: torch.cuda.Event | None


def _pack(tensors: list[tuple[Tag, torch.Tensor]]) -> tuple[torch.Tensor, list[tuple[Tag, int]]]:
    """One flat tensor out of many of the same device and dtype, all of them numbers or all of them vectors."""
    if tensors[0][1].dim() == 0:
        return torch.stack([tensor for _, tensor in tensors]), [(tag, -1) for tag, _ in tensors]
    layout = [(tag, tensor.numel()) for tag, tensor in tensors]
    return torch.cat([tensor.reshape(-1) for _, tensor in tensors]), layout


def _unpack(flat: list[float], layout: list[tuple[Tag, int]], into: Delivery) -> None:
    position = 0
    for tag, length in layout:
        if length == -1:
            into[tag] = flat[position]
            position += 1
        else:
            into[tag] = flat[position : position + length]
            position += length


class Mailbox:
    """Posts tensors from wherever they are; delivers numbers once they have arrived.

    On the CPU a parcel is delivered at once. On CUDA the values are gathered into one pinned buffer by an
    asynchronous copy, and delivered by a later :meth:`collect` when its event has passed.
    """

    def __init__(self) -> None:
        self._parcels: list[_Parcel] = []
        self.lost = False
        """Whether the device has failed, so that nothing can be had of it any more."""

    def post(self, items: list[tuple[Tag, torch.Tensor]], receiver: Receiver) -> None:
        """Send ``items``; ``receiver`` gets them all at once, in the order of posting."""
        if self.lost:
            return
        try:
            self._post(items, receiver)
        except RuntimeError as error:
            self._fail(error)

    def _post(self, items: list[tuple[Tag, torch.Tensor]], receiver: Receiver) -> None:
        groups: dict[tuple[torch.device, torch.dtype, bool], list[tuple[Tag, torch.Tensor]]] = {}
        for item in items:
            tensor = item[1]
            groups.setdefault((tensor.device, tensor.dtype, tensor.dim() == 0), []).append(item)
        parcel = _Parcel(receiver, {}, [], None)
        for (device, _, _), tensors in groups.items():
            flat, layout = _pack(tensors)
            if device.type == "cuda":
                host = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=True)
                host.copy_(flat, non_blocking=True)
                parcel.waiting.append((host, layout))
                parcel.ready = torch.cuda.Event()
                parcel.ready.record(torch.cuda.current_stream(device))
            else:
                _unpack(flat.tolist(), layout, parcel.delivery)
        self._parcels.append(parcel)
        self.collect()

    def collect(self, *, wait: bool = False) -> None:
        """Deliver what has arrived, oldest first; with ``wait``, everything."""
        while self._parcels:
            parcel = self._parcels[0]
            try:
                if parcel.ready is not None and not parcel.ready.query():
                    if not wait:
                        return
                    parcel.ready.synchronize()
            except RuntimeError as error:
                self._fail(error)
                return
            self._parcels.pop(0)
            for host, layout in parcel.waiting:
                _unpack(host.tolist(), layout, parcel.delivery)
            parcel.receiver(parcel.delivery)

    def _fail(self, error: RuntimeError) -> None:
        """The script's own mistake on the device has ended it: what was under way is let lie, never to be freed.

        A buffer that is freed there ends the process at once, before anybody is told what happened.
        """
        if not device_failed(error):
            raise error
        self.lost = True
        for parcel in self._parcels:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(parcel))
        self._parcels.clear()


def device_failed(error: BaseException) -> bool:
    """Whether an error says that the device can no longer be used; being out of memory does not."""
    kind = getattr(torch, "AcceleratorError", None)
    return (kind is not None and isinstance(error, kind)) or "CUDA error" in str(error)
