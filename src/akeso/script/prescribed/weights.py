"""The weights of the model that is trained, saved where the script would not have."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from akeso.script.prescribed.case import case_of

if TYPE_CHECKING:
    from akeso.script.prescribed.operation import Operation

_LARGEST = 2 << 30  # bytes of weights beyond which only the last ones are kept


def trained_models(operation: Operation) -> list[nn.Module]:
    """The models of which the optimizers hold parameters, with all that they are part of, the one with most first."""
    held = {id(p) for optimizer in operation.optimizers for g in optimizer.param_groups for p in g["params"]}
    sizes: dict[nn.Module, int] = {}
    for model in [case_of(model).holder or model for model in operation.models]:
        sizes[model] = sum(p.numel() for p in model.parameters() if id(p) in held)
    return sorted((model for model in sizes if sizes[model]), key=lambda model: -sizes[model])


def trained_model(operation: Operation) -> nn.Module | None:
    """The model that has most of the parameters the optimizers hold, with all that it is part of."""
    return next(iter(trained_models(operation)), None)


def beside(model: nn.Module, operation: Operation) -> dict[str, nn.Module]:
    """Other models that are trained and share nothing with this one, by what the script calls them."""
    own = {id(parameter) for parameter in model.parameters()}
    others = [m for m in trained_models(operation) if all(id(p) not in own for p in m.parameters())]
    named = {name.rpartition(".")[2]: other for other in others if (name := operation.names.of(other))}
    return {name: other for name, other in named.items() if name.isidentifier()}


def save(model: nn.Module, path: Path, tell: Callable[[str], None]) -> str | None:
    """Save a model's state dict; as safetensors where that package is there and takes it.

    Where nothing can be written the reason is told, and the training goes on without.
    """
    state = {
        name: value.detach().cpu().contiguous().clone()
        for name, value in model.state_dict().items()
        if isinstance(value, torch.Tensor)
    }
    reason = ""
    for write, suffix in ((_safetensors, ".safetensors"), (_torch, ".pt")):
        file = path.with_suffix(suffix)
        part = file.with_suffix(f"{suffix}.part")
        try:
            write(state, part)
            os.replace(part, file)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            _remove(part)
            continue
        return str(file)
    tell(f"the {path.name} weights could not be saved: {reason}")
    return None


def _remove(part: Path) -> None:
    with contextlib.suppress(OSError):  # what kept the file from being written may keep it from being removed
        part.unlink(missing_ok=True)


def _safetensors(state: dict[str, Any], path: Path) -> None:
    from safetensors.torch import save_file

    save_file(state, str(path))


def _torch(state: dict[str, Any], path: Path) -> None:
    torch.save(state, path)


class BestWeights:
    """Keeps the weights of the best evaluation so far."""

    def __init__(self, folder: Path, tell: Callable[[str], None]) -> None:
        self._folder = folder
        self._tell = tell
        self._best: float | None = None
        self._seen = 0
        self.file: str | None = None

    def look(
        self, model_now: Callable[[], nn.Module | None], values: list[float], higher_is_better: bool
    ) -> None:
        """Save where the newest of these evaluations is the best one; nothing where there is no new one."""
        if len(values) <= self._seen:
            return
        self._seen = len(values)
        model = model_now()
        if model is None:
            return
        value = values[-1] if higher_is_better else -values[-1]
        if value != value or (self._best is not None and value <= self._best):
            return
        if sum(p.numel() * p.element_size() for p in model.parameters()) > _LARGEST:
            return
        self._best = value
        self.file = save(model, self._folder / "best", self._tell)
