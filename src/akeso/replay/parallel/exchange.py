"""What virtual ranks need from ``torch.distributed``: send, receive, broadcast, and one small gather.

Only copies travel: every addition happens in our own code, in the order of the tree. The collective
reductions of a backend are not used on floating-point numbers, because their order is the backend's own.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


class Exchange:
    """The processes that work on one step; a single process when ``torch.distributed`` is not in use."""

    def __init__(self, group: Any = None) -> None:
        self._group = group
        self._active = dist.is_available() and dist.is_initialized()
        self.rank: int = dist.get_rank(group) if self._active else 0
        self.world: int = dist.get_world_size(group) if self._active else 1

    @property
    def device(self) -> torch.device:
        """Where tensors must lie to travel: NCCL moves GPU memory only."""
        if self._active and "nccl" in str(dist.get_backend(self._group)):
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("cpu")

    def send(self, tensors: list[torch.Tensor], to: int) -> None:
        """Send tensors to process ``to``, in order."""
        for tensor in tensors:
            dist.send(self._outbound(tensor), self._global(to), group=self._group)

    def receive(self, like: list[torch.Tensor], source: int) -> list[torch.Tensor]:
        """Receive tensors with the shapes and types of ``like`` from process ``source``."""
        received = []
        for tensor in like:
            buffer = torch.empty_like(tensor, device=self._travel_device(tensor))
            dist.recv(buffer, self._global(source), group=self._group)
            received.append(buffer.to(tensor.device))
        return received

    def broadcast(self, tensors: list[torch.Tensor], source: int) -> list[torch.Tensor]:
        """The tensors as process ``source`` has them, on every process."""
        if self.world == 1:
            return tensors
        result = []
        for tensor in tensors:
            buffer = self._outbound(tensor)
            if buffer is tensor and self.rank != source:
                buffer = tensor.clone()
            dist.broadcast(buffer, self._global(source), group=self._group)
            result.append(buffer.to(tensor.device))
        return result

    def gather_integers(self, values: list[int]) -> list[list[int]]:
        """One equally long list of 64-bit integers from every process, by rank."""
        if self.world == 1:
            return [values]
        mine = torch.tensor(values, dtype=torch.int64, device=self.device)
        parts = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(parts, mine, group=self._group)
        return [part.tolist() for part in parts]

    def _travel_device(self, tensor: torch.Tensor) -> torch.device:
        """NCCL needs GPU memory; Gloo takes both, yet its GPU support varies, so it gets CPU memory."""
        wanted = self.device
        return tensor.device if wanted.type == tensor.device.type else wanted

    def _outbound(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.contiguous().to(self._travel_device(tensor))

    def _global(self, rank: int) -> int:
        return rank if self._group is None else int(dist.get_global_rank(self._group, rank))
