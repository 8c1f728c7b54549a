"""A training program for the tests that kill it: two loops in a function, augmentation in the dataset."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from akeso.replay import Run


class Noisy(Dataset[Any]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return torch.randn(6) * random.random() + np.random.rand(), torch.tensor(index % 3)


def main(folder: str, kill_at: int) -> None:
    # Every step recorded and no snapshot dropped, however slow the machine and its disk.
    run = Run(folder, seed=3, snapshot_every=5, keep=40, budget=1.0)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 16), torch.nn.Dropout(0.2), torch.nn.ReLU(), torch.nn.Linear(16, 3)
    )
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    run.track(model=model, optimizer=optimizer)
    data, best = Noisy(), 1e9
    for _ in run.epochs(4):
        total = 0.0
        for x, y in run.batches(data, batch_size=4):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss)
            total += loss.item()
            if run.steps == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        best = min(best, total)
    bits = [item.double().sum().item().hex() for item in model.parameters()]
    Path(f"{folder}.json").write_text(json.dumps([best.hex(), total.hex(), bits]))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], int(os.environ.get("KILL_AT", "0")))
