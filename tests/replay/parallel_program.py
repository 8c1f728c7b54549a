"""A small training program that torchrun starts on any number of processes; writes digests as JSON."""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from akeso.errors import Refused
from akeso.replay import Run, digests
from akeso.replay.parallel import VirtualRanks

BATCH = 22  # not a multiple of four: shares of 5 and 6 samples


class Net(torch.nn.Module):
    def __init__(self, norm: str) -> None:
        super().__init__()
        self.first = torch.nn.Linear(20, 32)
        self.norm = torch.nn.LayerNorm(32) if norm == "layer" else torch.nn.BatchNorm1d(32)
        self.drop = torch.nn.Dropout(0.3)
        self.last = torch.nn.Linear(32, 4)
        self.unused = torch.nn.Linear(3, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.drop(torch.relu(self.norm(self.first(inputs)))))


def train(norm: str, steps: int, start: Path | None = None, save: Path | None = None) -> dict[str, Any]:
    torch.manual_seed(0)
    model = Net(norm)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    inputs, targets = torch.randn(400, 20), torch.randint(0, 4, (400,))
    targets[::7] = -100
    first = 0
    if start:
        state = torch.load(start, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    torch.manual_seed(100 + dist.get_rank())  # what a process draws on its own must not matter
    ranks = VirtualRanks(model, virtual=4, seed=7, step=lambda: step)
    losses = []
    for step in range(first, steps):
        low = step * BATCH
        batch = {"inputs": inputs[low : low + BATCH], "targets": targets[low : low + BATCH]}
        optimizer.zero_grad()
        with ranks:
            for micro in ranks.split(batch):
                output = model(micro["inputs"])
                loss = torch.nn.functional.cross_entropy(output, micro["targets"])
                ranks.backward(loss, weight=(micro["targets"] != -100).sum())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(digests.bits(ranks.loss))
    if save and dist.get_rank() == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": steps}, save)
    named = {name: str(digests.of_tensors([value])) for name, value in model.state_dict().items()}
    return {"losses": losses, "state": named, "unused": model.unused.weight.grad is None}


def train_with_run(folder: Path, stop: int | None = None) -> dict[str, Any]:
    run = Run(folder, seed=0, snapshot_every=3, allow=True)  # the command lines differ on purpose
    torch.manual_seed(0)
    model = Net("layer")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    run.track(model=model, optimizer=optimizer)
    data = torch.utils.data.TensorDataset(torch.randn(64, 20), torch.randint(0, 4, (64,)))
    ranks = VirtualRanks.of(run, model, virtual=4)
    losses, resumed, mine = [], run.steps, 0
    for batch in run.batches(data, batch_size=10, epochs=2):
        if run.steps == stop:
            break
        optimizer.zero_grad()
        with ranks:
            for inputs, targets in ranks.split(batch):
                ranks.backward(torch.nn.functional.cross_entropy(model(inputs), targets))
        optimizer.step()
        losses.append(digests.bits(ranks.loss))
        mine += dist.get_rank()  # not the same in all processes
        run.step(ranks.loss)
    run.close()
    named = {name: str(digests.of_tensors([value])) for name, value in model.state_dict().items()}
    return {
        "losses": losses,
        "state": named,
        "mismatches": list(run.mismatches),
        "resumed": resumed,
        "notes": run.notes,
    }


def refusal_of_different_replicas() -> str:
    torch.manual_seed(dist.get_rank())
    model = torch.nn.Linear(2, 2)
    try:
        with VirtualRanks(model, virtual=4):
            pass
    except Refused as error:
        return str(error)
    except ValueError:
        return ""  # alone, nothing differs; the step is left without having computed anything
    return ""


def main(folder: Path, **place: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", **place)
    world, rank = dist.get_world_size(), dist.get_rank()
    middle = folder / "middle.pt"
    result = {"layer": train("layer", 10), "batch": train("batch", 6)}
    if world == 4:
        result["half"] = train("layer", 5, save=middle)
    elif world == 2:
        result["rest"] = train("layer", 10, start=middle)
    if world == 4:
        result["run"] = train_with_run(folder / "shared", stop=8)
    else:
        result["run"] = train_with_run(folder / ("shared" if world == 2 else "alone"))
    result["refusal"] = refusal_of_different_replicas()
    (folder / f"{world}.{rank}.json").write_text(json.dumps(result))
    dist.barrier()  # none leaves while another still talks to it
    dist.destroy_process_group()


def fork(folder: Path, world: int) -> None:
    """What torchrun does, without importing torch once more for every process."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            # Told the group alone, as under torch.multiprocessing: no RANK in the environment.
            main(folder, init_method=f"tcp://localhost:{port}", rank=rank, world_size=world)
            os._exit(0)
        children.append(child)
    if any(os.waitpid(child, 0)[1] for child in children):
        raise SystemExit(f"a process of {world} failed")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        importlib.import_module("torch._dynamo")  # the first optimizer loads it
        for count in sys.argv[2:]:
            fork(Path(sys.argv[1]), int(count))
    else:
        main(Path(sys.argv[1]))
