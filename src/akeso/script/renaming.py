"""Saved weights under the names that a model's parts have in the user's own script."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Bytes at the head of a safetensors file that say how long its table of contents is.
_HEAD = 8


def rename_weights(file: Path, names: Mapping[str, str]) -> None:
    """Give the tensors in a file of weights other names; ``names`` are parts of a model, old and new.

    The file is replaced in whole or left as it is.

    >>> renamed("blocks.0.norm.0.weight", {"blocks.0.norm.0": "blocks.0.fc_norm"})
    'blocks.0.fc_norm.weight'
    """
    if not names:
        return
    part = file.with_suffix(f"{file.suffix}.part")
    _safetensors(file, part, names) if file.suffix == ".safetensors" else _torch(file, part, names)
    os.replace(part, file)


def renamed(name: str, names: Mapping[str, str]) -> str:
    """What a tensor is called once the part of the model that it belongs to has its new name."""
    held = [old for old in names if name == old or name.startswith(f"{old}.")]
    old = max(held, key=len, default="")
    return names[old] + name[len(old) :] if held else name


def _safetensors(file: Path, part: Path, names: Mapping[str, str]) -> None:
    """The format begins with a table of contents in JSON; the tensors behind it stay as they are."""
    content = file.read_bytes()
    end = _HEAD + int.from_bytes(content[:_HEAD], "little")
    table: dict[str, Any] = json.loads(content[_HEAD:end])
    text = json.dumps({renamed(name, names): entry for name, entry in table.items()}).encode()
    text += b" " * (-len(text) % _HEAD)  # tensors begin at a multiple of eight
    part.write_bytes(len(text).to_bytes(_HEAD, "little") + text + content[end:])


def _torch(file: Path, part: Path, names: Mapping[str, str]) -> None:
    import torch

    state = torch.load(file, map_location="cpu", weights_only=True)
    torch.save({renamed(name, names): value for name, value in state.items()}, part)
