"""Runs a small script in this process under a prescription."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from akeso.remedies.edit import Edit, Prescription
from akeso.script.prescribed.ledger import Ended, Ledger
from akeso.script.prescribed.operation import Operation

CIRCLE = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
x = torch.randn(64, 2)
y = (x.norm(dim=1) > 1.2).long()
"""


class Performance:
    """What a script left behind: its names, the operation and the ledger."""

    def __init__(self, names: dict[str, Any], operation: Operation, ended: str) -> None:
        self.names = names
        self.operation = operation
        self.ledger = operation.ledger
        self.ended = ended

    def __getitem__(self, name: str) -> Any:
        return self.names[name]

    @property
    def refused(self) -> dict[str, str]:
        return {edit.remedy: reason for edit, reason in self.ledger.refused.items()}


def perform(folder: Path, source: str, *edits: Edit, **options: Any) -> Performance:
    """Run the source as a script under the edits; names are kept even when the script was ended."""
    script = folder / "train.py"
    script.write_text(source)
    operation = Operation(Ledger(Prescription(edits)), **options)
    names: dict[str, Any] = {}
    ended = ""
    with operation:
        try:
            names = runpy.run_path(str(script), run_name="__main__")
        except Ended as end:
            ended = str(end)
        if not ended and operation.steps:
            try:
                operation.settle()
            except Ended as end:
                ended = str(end)
    return Performance(names, operation, ended)


def edit(remedy: str, where: str = "", **values: Any) -> Edit:
    """An edit; ``from_`` stands for ``from``."""
    return Edit(remedy, where, {name.rstrip("_"): value for name, value in values.items()})
