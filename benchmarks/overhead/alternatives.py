"""What people do today to see into a training, as blocks of steps that can be timed beside akeso."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from benchmarks.overhead.trainings import Step


def item_loop(model: nn.Module, step: Step, block: int) -> None:
    """Read the norm of every gradient at every step."""
    for _ in range(block):
        step()
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.norm().item()


def anomaly(model: nn.Module, step: Step, block: int) -> None:
    """Train under autograd's own search for NaN."""
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        for _ in range(block):
            step()


@contextmanager
def histograms(folder: Path) -> Iterator[Callable[[nn.Module, Step, int], None] | None]:
    """Write a TensorBoard histogram per layer every hundred steps; ``None`` where it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        yield None
        return
    writer = SummaryWriter(str(folder))
    done = 0

    def block_of(model: nn.Module, step: Step, block: int) -> None:
        nonlocal done
        for _ in range(block):
            step()
            done += 1
            if done % 100 == 0:
                for name, parameter in model.named_parameters():
                    if parameter.grad is not None:
                        writer.add_histogram(name, parameter.grad, done)

    yield block_of
    writer.close()
