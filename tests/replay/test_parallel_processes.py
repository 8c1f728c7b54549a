"""Real processes, two of them under torchrun: their number must not show in the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.script.commands import python_at_once

PROGRAM = Path(__file__).with_name("parallel_program.py")


#: What gloo's threads may end a process with when it leaves; the work is done by then, and akeso has no part in it.
ABORTED = "terminate called without an active exception"


def start(command: list[str]) -> bool:
    """Whether the program ended as it should; not when its process was aborted on its way out."""
    done = python_at_once(Path.cwd(), *command)
    said = done.stderr.decode()
    assert done.returncode == 0 or ABORTED in said, said[-3000:]
    return done.returncode == 0


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    torchrun = ["-m", "torch.distributed.run", "--rdzv-backend", "c10d"]
    torchrun += ["--rdzv-endpoint", "localhost:0", "--nproc-per-node", "2"]
    for _ in range(3):
        folder = tmp_path_factory.mktemp("processes")
        if start([str(PROGRAM), str(folder), "4", "1"]) and start([*torchrun, str(PROGRAM), str(folder)]):
            break
    return {
        world: [json.loads((folder / f"{world}.{rank}.json").read_text()) for rank in range(world)]
        for world in (4, 2, 1)
    }


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_one_two_and_four_processes_give_the_same_bits(
    results: dict[int, list[dict[str, Any]]], norm: str
) -> None:
    alone = results[1][0][norm]
    assert len(set(alone["losses"])) == len(alone["losses"])
    for processes in (2, 4):
        assert all(result[norm] == alone for result in results[processes])


def test_a_run_begun_on_four_processes_goes_on_with_two(results: dict[int, list[dict[str, Any]]]) -> None:
    whole = results[1][0]["layer"]
    for result in results[2]:
        assert result["rest"]["state"] == whole["state"]
        assert result["rest"]["losses"] == whole["losses"][5:]


def test_a_recorded_run_interrupted_on_four_processes_is_finished_by_two(
    results: dict[int, list[dict[str, Any]]],
) -> None:
    whole = results[1][0]["run"]
    assert len(whole["losses"]) == 14
    for result in results[4]:
        assert result["run"]["losses"] == whole["losses"][:8]
    for result in results[2]:
        rest = result["run"]
        assert rest["state"] == whole["state"]
        assert rest["losses"] == whole["losses"]  # the list itself is part of the snapshot
        assert rest["mismatches"] == []
        assert rest["resumed"] >= 3


def test_values_that_differ_between_processes_are_named_by_the_one_that_writes(
    results: dict[int, list[dict[str, Any]]],
) -> None:
    for world in (2, 4):
        (named,) = _differing(results[world])
        assert named.startswith("parallel_program.py:train_with_run:mine: ")
    assert _differing(results[1]) == []


def _differing(results: list[dict[str, Any]]) -> list[str]:
    notes = [note for result in results for note in result["run"]["notes"]]
    return [note for note in notes if "not the same in all processes" in note]


def test_parameters_nobody_uses_keep_no_gradient(results: dict[int, list[dict[str, Any]]]) -> None:
    assert all(result["layer"]["unused"] for group in results.values() for result in group)


def test_processes_that_start_from_different_parameters_are_refused(
    results: dict[int, list[dict[str, Any]]],
) -> None:
    assert all("different parameters" in result["refusal"] for result in results[2] + results[4])
