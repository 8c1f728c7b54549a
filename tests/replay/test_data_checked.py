"""Data that changes between two lives of a run: noticed wherever it lies, and only when it has changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset

from akeso.errors import Refused
from akeso.replay import fingerprint_data
from akeso.replay.run import Run

pytestmark = pytest.mark.usefixtures("process_as_before")
PIXELS = np.arange(24.0).reshape(8, 3)
MEAN = torch.zeros(3)
LINES = [f"line {number}" for number in range(8)]
PLACE = ""


class FromGlobals(Dataset[Any]):
    """Holds nothing; what it gives lies in global variables, one of them behind a function."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return centred(torch.from_numpy(PIXELS[index])), len(LINES[index])


def centred(x: torch.Tensor) -> torch.Tensor:
    return x - MEAN


class FromFile(Dataset[Any]):
    """Opens a file for every sample."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return np.load(PLACE)[index]


class Drawn(Dataset[Any]):
    """Reads nothing at all."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return torch.randn(2)


def _live(folder: Path, dataset: Any, stop: int = 0, **options: Any) -> list[str]:
    with Run(folder, seed=1, snapshot_every=2) as run:
        for _ in run.batches(dataset, batch_size=2, epochs=2, **options):
            run.step(0.0)
            if run.steps == stop:
                break
        return run.notes


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of data that is older than this process."""
    path = tmp_path / "data.npy"
    np.save(path, PIXELS)
    os.utime(path, (1e9, 1e9))
    monkeypatch.setitem(globals(), "PLACE", str(path))
    return path


@pytest.mark.parametrize("wrap", [lambda data: data, lambda data: Subset(data, range(8))])
@pytest.mark.parametrize("name", ["PIXELS", "MEAN", "LINES"])
def test_one_changed_value_in_a_global_variable_is_refused(
    name: str, wrap: Callable[[Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _live(tmp_path / "run", wrap(FromGlobals()), 3)
    changed: Any = {"PIXELS": PIXELS.copy(), "MEAN": MEAN.clone(), "LINES": list(LINES)}[name]
    before = changed[1]
    changed[1] = "other" if name == "LINES" else changed[1] + 1
    monkeypatch.setitem(globals(), name, changed)
    with pytest.raises(Refused, match=f"{name}, which the code of the dataset names, holds other values"):
        _live(tmp_path / "run", wrap(FromGlobals()))
    changed[1] = before if name == "LINES" else changed[1] - 1
    assert len(_live(tmp_path / "run", wrap(FromGlobals()))) == 1


def test_what_a_transform_closes_over_is_checked(tmp_path: Path) -> None:
    def shifted(by: np.ndarray[Any, Any]) -> Callable[[Any], Any]:
        return lambda sample: sample + torch.from_numpy(by)

    _live(tmp_path, Drawn(), 3, transform=shifted(np.ones(2)))
    with pytest.raises(Refused, match="by, which the code of the dataset names"):
        _live(tmp_path, Drawn(), transform=shifted(np.array([1.0, 1.5])))
    _live(tmp_path, Drawn(), transform=shifted(np.ones(2)))


def test_a_file_of_the_same_size_with_other_bytes_is_refused_and_a_touched_one_is_not(
    tmp_path: Path, file: Path
) -> None:
    _live(tmp_path / "run", FromFile(), 3)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"\x01")
    with pytest.raises(Refused, match=r"the file .*data\.npy holds other bytes than before"):
        _live(tmp_path / "run", FromFile())
    file.write_bytes(whole)
    assert len(_live(tmp_path / "run", FromFile())) == 1


def test_files_too_large_to_read_are_sampled_and_doubt_is_said(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprint_data, "_WHOLE", 200)
    monkeypatch.setattr(fingerprint_data, "_BLOCK", 1)
    _live(tmp_path / "run", FromFile(), 3)
    os.utime(file, (2e9, 2e9))
    notes = _live(tmp_path / "run", FromFile())
    assert notes[0].startswith("going on")
    assert "data.npy was written since the run began, with the same size; not every byte" in notes[1]


def test_a_log_that_the_code_of_a_dataset_writes_is_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Logging(Drawn):
        def __getitem__(self, index: int) -> Any:
            with open(PLACE, "a") as log:
                log.write(f"{index}\n")
            return torch.randn(2)

    log = tmp_path / "log.txt"
    log.write_text("begun\n")
    monkeypatch.setitem(globals(), "PLACE", str(log))
    _live(tmp_path / "run", Logging(), 3)
    _live(tmp_path / "run", Logging())
    assert len(log.read_text().splitlines()) > 8


def test_data_that_the_program_changes_itself_is_not_compared_again(tmp_path: Path) -> None:
    weights = np.ones(8)

    class Weighted(Drawn):
        def __getitem__(self, index: int) -> Any:
            return torch.randn(2) * weights[index]

    with Run(tmp_path, seed=1) as run:
        for _ in run.epochs(3):
            for _ in run.batches(Weighted(), batch_size=2):
                run.step(0.0)
            weights *= 0.5
    assert run.steps == 12


def test_data_that_cannot_be_checked_is_said_at_the_start(tmp_path: Path) -> None:
    notes = _live(tmp_path, Drawn(), 3)
    assert notes[0].startswith("the data of this Drawn cannot be checked")
    assert len(_live(tmp_path, Drawn())) == 1
