"""The same program killed and resumed with akeso and with what others offer, as their documentation says.

A small classifier with dropout, on a dataset that augments with torch, NumPy and Python's ``random``; checkpoints
every five steps, a kill in the middle of the second epoch. Compared is the model at the end with that of the same
program, under the same library, left alone.
"""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.replay import lives

KILL_AT, EVERY, EPOCHS = 17, 5, 4


class Noisy(Dataset[Any]):
    def __len__(self) -> int:
        return 80

    def __getitem__(self, index: int) -> Any:
        # Three kinds of draws, as augmentation libraries mix them.
        x = torch.full((12,), index / 80) + 0.3 * torch.randn(12)
        return (x * (0.5 + random.random()) + float(np.random.rand())).float(), torch.tensor(index % 3)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 3))


def _seed() -> None:
    torch.set_num_threads(1)
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def _weights(model: nn.Module) -> dict[str, Any]:
    return {"weights": [value for item in model.parameters() for value in item.detach().flatten().tolist()]}


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> torch.Tensor:
    loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def _kill(step: int, kill: bool) -> None:
    if kill and step == KILL_AT:
        os.kill(os.getpid(), signal.SIGKILL)


def akeso(folder: Path, kill: bool) -> dict[str, Any]:
    from akeso.replay.run import Run

    torch.set_num_threads(1)
    with Run(folder / "run", seed=0, snapshot_every=EVERY) as run:
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        run.track(model=model, optimizer=optimizer)
        for batch in run.batches(Noisy(), batch_size=8, epochs=EPOCHS):
            run.step(_step(model, optimizer, batch))
            _kill(run.steps, kill)
    return _weights(model)


def stateful_dataloader(folder: Path, kill: bool) -> dict[str, Any]:
    from torchdata.stateful_dataloader import StatefulDataLoader

    _seed()
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    loader = StatefulDataLoader(Noisy(), batch_size=8, shuffle=True)
    path = folder / "checkpoint.pt"
    epoch, step = 0, 0
    if path.exists():
        held = torch.load(path, weights_only=False)
        model.load_state_dict(held["model"])
        optimizer.load_state_dict(held["optimizer"])
        loader.load_state_dict(held["loader"])
        epoch, step = held["epoch"], held["step"]
    while epoch < EPOCHS:
        for batch in loader:
            _step(model, optimizer, batch)
            step += 1
            if step % EVERY == 0:
                states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**states, "loader": loader.state_dict(), "epoch": epoch, "step": step}, path)
            _kill(step, kill)
        epoch += 1
    return _weights(model)


def lightning(folder: Path, kill: bool) -> dict[str, Any]:
    import logging

    import lightning as pl
    from lightning.pytorch.callbacks import ModelCheckpoint

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    pl.seed_everything(0, workers=True, verbose=False)

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def training_step(self, batch: Any, number: int) -> torch.Tensor:
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def on_train_batch_end(self, *_: Any) -> None:
            # After the checkpoint of this step has been written, as in the other programs.
            pass

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), 1e-2)

    class Killer(pl.Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            _kill(trainer.global_step, kill)

    saving = ModelCheckpoint(folder, every_n_train_steps=EVERY, save_last=True, save_top_k=-1)
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        deterministic=True,
        logger=False,
        callbacks=[saving, Killer()],
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    module = Module()
    last = folder / "last.ckpt"
    loader = DataLoader(Noisy(), batch_size=8, shuffle=True)
    trainer.fit(module, loader, ckpt_path=str(last) if last.exists() else None)
    return _weights(module.net)


def accelerate(folder: Path, kill: bool) -> dict[str, Any]:
    from accelerate import Accelerator
    from accelerate.utils import set_seed

    torch.set_num_threads(1)
    set_seed(0)
    accelerator = Accelerator(cpu=True)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    loader = DataLoader(Noisy(), batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    step, done = 0, -1
    place, number = folder / "state", folder / "step.txt"
    if number.exists():
        accelerator.load_state(str(place))
        step = done = int(number.read_text())
    for epoch in range(max(done, 0) // 10, EPOCHS):
        skip = done % 10 if done >= 0 and epoch == done // 10 else 0
        batches = accelerator.skip_first_batches(loader, skip) if skip else loader
        for batch in batches:
            _step(model, optimizer, batch)
            step += 1
            if step % EVERY == 0:
                accelerator.save_state(str(place))
                number.write_text(str(step))
            _kill(step, kill)
    return _weights(accelerator.unwrap_model(model))


PEERS: dict[str, tuple[str, Callable[[Path, bool], dict[str, Any]]]] = {
    "akeso": ("akeso", akeso),
    "StatefulDataLoader": ("torchdata", stateful_dataloader),
    "Lightning": ("lightning", lightning),
    "Accelerate": ("accelerate", accelerate),
    "Composer": ("composer", akeso),
}


def judge(name: str, module: str, program: Callable[[Path, bool], dict[str, Any]]) -> tuple[str, bool | None]:
    """Return what became of a kill and a resume, in words, and whether the bits are equal."""
    if importlib.util.find_spec(module) is None:
        return "not installed here, so not measured", None
    __import__(module)
    home = Path(tempfile.mkdtemp(prefix="akeso-peers-"))
    try:
        for part in ("whole", "again", "cut"):
            (home / part).mkdir()
        whole = lives.result(partial(program, home / "whole", False))["weights"]
        again = lives.result(partial(program, home / "again", False))["weights"]
        ended = lives.run(partial(program, home / "cut", True))
        if ended.signal != signal.SIGKILL:
            return f"was not killed: {ended.error[-200:]}", False
        resumed = lives.run(partial(program, home / "cut", False))
        if resumed.result is None:
            last = (resumed.error.strip().splitlines() or ["no result"])[-1]
            return f"resume failed: {last}", False
        found = resumed.result["weights"]
        if found == whole:
            return "equal, bit for bit", True
        away = float(np.linalg.norm(np.subtract(found, whole)) / np.linalg.norm(whole))
        return (
            f"weights differ by {away:.2%} ({'two whole runs are equal' if again == whole else 'so do whole runs'})",
            False,
        )
    finally:
        shutil.rmtree(home, ignore_errors=True)


def main(quick: bool = False) -> int:
    """Print the table; exit status 1 where akeso itself is not equal."""
    print("| resumed with | after a kill in the middle of epoch 2 |\n| --- | --- |")
    good = False
    for name, (module, program) in PEERS.items():
        words, equal = judge(name, module, program)
        print(f"| {name} | {words} |", flush=True)
        good = good or (name == "akeso" and equal is True)
    return 0 if good else 1
