"""Trains under data parallelism with and without watching; one process a rank."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import akeso


def train() -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(12):
        x = torch.randn(16, 6, generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long()).backward()
        optimizer.step()
    return [tensor.detach().clone() for tensor in model.state_dict().values()]


if __name__ == "__main__":
    dist.init_process_group("gloo")
    alone = train()
    with akeso.watch() as watch:
        watched = train()
    assert all(torch.equal(a, b) for a, b in zip(alone, watched, strict=True))
    assert watch.steps == 12
    assert watch.history.facts["task"] == "binary"
    assert "0.weight" in watch.history.scopes("grad_l2")
    print(f"rank {dist.get_rank()} sees the same bits")
    dist.destroy_process_group()
