"""Snapshots: read by others too, whole or recognised as damaged, never half there."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from akeso.errors import BadInput
from akeso.replay import snapshot
from akeso.replay.snapshot_background import BackgroundWriter
from akeso.replay.state import Packing

STATE = {
    "weights": torch.arange(10.0),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "empty": torch.zeros(0, 2),
    "n": 3,
}


def _take(folder: Path, *steps: int, keep: int = 2, spare: int = 0) -> BackgroundWriter:
    writer = BackgroundWriter(folder, keep, spare)
    for step in steps:
        writer.take(step, {**STATE, "step": step})
        writer.wait()
    return writer


def test_a_snapshot_comes_back_and_safetensors_can_read_it(tmp_path: Path) -> None:
    _take(tmp_path, 5)
    info, passed = snapshot.newest_whole(tmp_path)
    assert info is not None
    assert passed == ()
    back = snapshot.load(info)
    assert back["n"] == 3
    assert back["empty"].shape == (0, 2)
    held = load_file(info.path / "tensors.safetensors")
    assert torch.equal(held["state.weights"], STATE["weights"])
    assert torch.equal(held["state.half"], STATE["half"])


def test_tensors_of_any_type_and_sparse_ones_come_back(tmp_path: Path) -> None:
    exact = torch.randn(2, 3, dtype=torch.complex128)
    gradient = torch.sparse_coo_tensor([[1, 1, 4]], torch.randn(3, 2), (6, 2), check_invariants=True)
    state = {
        "exact": exact,
        "turned": exact.T,
        "conjugate": exact.conj(),
        "number": torch.tensor(1 + 2j, dtype=torch.complex128),
        "eighth": torch.tensor([0.5, 2.0]).to(getattr(torch, "float8_e8m0fnu", torch.float8_e5m2)),
        "gradient": gradient,
        "summed": gradient.coalesce(),
    }
    writer = BackgroundWriter(tmp_path, 2, 0)
    writer.take(1, state)
    writer.wait()
    info, _ = snapshot.newest_whole(tmp_path)
    assert info is not None
    back = snapshot.load(info)
    for name in ("exact", "turned", "conjugate", "number"):
        assert torch.equal(back[name], state[name].resolve_conj())
    assert back["turned"].stride() == state["turned"].stride()
    assert back["eighth"].float().tolist() == [0.5, 2.0]
    for name, whole in (("gradient", False), ("summed", True)):
        assert back[name].is_coalesced() == whole
        assert torch.equal(back[name]._indices(), state[name]._indices())
        assert torch.equal(back[name]._values(), state[name]._values())


def test_numbers_that_are_kept_as_bytes_come_back_from_any_place_in_a_file(tmp_path: Path) -> None:
    writer = BackgroundWriter(tmp_path, 2, 0)
    state = {f"{place}": torch.randn(place, dtype=torch.complex128) for place in range(1, 6)}
    writer.take(1, {**state, "between": torch.zeros(3, dtype=torch.uint8), "half": torch.zeros(5).half()})
    writer.wait()
    info, _ = snapshot.newest_whole(tmp_path)
    assert info is not None
    back = snapshot.load(info)
    assert all(torch.equal(back[name], value) for name, value in state.items())


def test_small_tensors_are_copied_many_at_a_time_and_each_comes_back(tmp_path: Path) -> None:
    kinds = (torch.float32, torch.int64, torch.bfloat16, torch.int16, torch.bool)
    state = {f"{kind} {n}": torch.randint(0, 2, (n % 4, 3)).to(kind).T for n in range(40) for kind in kinds}
    state["large"] = torch.randn(50, 50)
    packing = Packing()
    packing.keep(state, "state")
    writer = BackgroundWriter(tmp_path, 2, 0)
    writer.take(1, state, packing)
    writer.wait()
    info, _ = snapshot.newest_whole(tmp_path)
    assert info is not None
    back = snapshot.load(info)
    assert all(torch.equal(back[name], value) for name, value in state.items())
    assert all(back[name].dtype == value.dtype for name, value in state.items())


def test_nothing_stays_of_what_could_not_be_written() -> None:
    packing = Packing()
    first, second = torch.ones(2), torch.ones(2)
    packing.keep([first], "first")
    with pytest.raises(BadInput, match=r"second\.2 is of type"):
        packing.keep([first, second, object()], "second")
    assert packing.tree([second, first], "both")[1]["n"] == "first.0"
    assert list(packing.tensors) == ["first.0", "both.0"]


def test_the_copy_is_taken_at_once(tmp_path: Path) -> None:
    writer = BackgroundWriter(tmp_path, 2, 0)
    value = torch.zeros(1000)
    writer.take(1, {"value": value})
    value += 1
    writer.wait()
    info, _ = snapshot.newest_whole(tmp_path)
    assert info is not None
    assert snapshot.load(info)["value"].sum() == 0


def test_the_two_newest_stay_and_those_asked_for(tmp_path: Path) -> None:
    _take(tmp_path, 10, 15, 20, 25, 30, spare=10)
    assert [info.step for info in snapshot.found(tmp_path)] == [10, 20, 25, 30]


def test_any_damage_is_recognised_and_the_one_before_is_taken(tmp_path: Path) -> None:
    _take(tmp_path, 1, 2)
    last = tmp_path / "snapshots" / f"{2:012d}"
    for file in sorted(last.iterdir()):
        whole = file.read_bytes()
        for place in range(0, len(whole), max(1, len(whole) // 9)):
            flipped = bytearray(whole)
            flipped[place] ^= 0x10
            file.write_bytes(bytes(flipped))
            _expect_first(tmp_path)
            file.write_bytes(whole[:place])
            _expect_first(tmp_path)
        file.unlink()
        _expect_first(tmp_path)
        file.write_bytes(whole)
    info, _ = snapshot.newest_whole(tmp_path)
    assert info is not None
    assert info.step == 2


def _expect_first(folder: Path) -> None:
    info, passed = snapshot.newest_whole(folder)
    assert info is not None
    assert info.step == 1
    assert [bad.step for bad in passed] == [2]


def test_a_disk_that_takes_no_more_leaves_what_was_there(tmp_path: Path) -> None:
    _take(tmp_path, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        writer = _take(tmp_path, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    ((step, _, _, trouble),) = writer.finished()
    assert step == 2
    assert "File too large" in str(trouble)
    assert [(info.step, info.whole) for info in snapshot.found(tmp_path)] == [(1, True)]
    assert list((tmp_path / "snapshots").glob(".*")) == []


def test_what_a_killed_process_was_writing_is_cleared_away(tmp_path: Path) -> None:
    left = tmp_path / "snapshots" / ".writing-000000000007-1"
    left.mkdir(parents=True)
    (left / "tensors.safetensors").write_bytes(b"half")
    assert snapshot.found(tmp_path) == ()
    _take(tmp_path, 8)
    assert not left.exists()


def test_memory_is_used_again(tmp_path: Path) -> None:
    writer = BackgroundWriter(tmp_path, 2, 0)
    places = []
    for step in (1, 2):
        writer.take(step, STATE)
        writer.wait()
        places.append(_memory(writer))
    assert places[0] == places[1]


def _memory(writer: Any) -> int:
    return int(writer._block._memory.data_ptr())
