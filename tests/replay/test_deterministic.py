from __future__ import annotations

import random

import numpy as np
import torch

from akeso.replay.deterministic import environment, needs_restart, prepare


def draws() -> tuple[float, ...]:
    return (
        random.random(),
        float(np.random.rand()),
        float(torch.rand(())),
        float(np.random.default_rng().random()),
        random.Random().random(),
    )


def test_prepared_processes_draw_the_same_numbers_seeded_or_not() -> None:
    found = []
    for seed in (3, 3, 4):
        prepared = prepare(seed)
        found.append(draws())
        prepared.undo()
    assert found[0] == found[1]
    assert all(mine != other for mine, other in zip(found[0], found[2], strict=True))


def test_undoing_puts_every_switch_back() -> None:
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.benchmark,
        torch.get_float32_matmul_precision(),
        torch.get_num_threads(),
    )
    prepared = prepare(0, threads=1)
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert prepared.threads == 1
    prepared.undo()
    after = (
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.benchmark,
        torch.get_float32_matmul_precision(),
        torch.get_num_threads(),
    )
    assert after == before
    assert random.Random().random() != random.Random().random()


def test_the_environment_fixes_the_hash_seed_unless_one_was_chosen() -> None:
    assert environment(7, {})["PYTHONHASHSEED"] == "7"
    assert environment(7, {"PYTHONHASHSEED": "3"})["PYTHONHASHSEED"] == "3"
    assert environment(7, {"PYTHONHASHSEED": "random"})["PYTHONHASHSEED"] == "7"
    assert environment(7, {})["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_random_hashes_are_said() -> None:
    prepared = prepare(5)
    prepared.undo()
    assert any("PYTHONHASHSEED=5" in note for note in prepared.notes) == needs_restart()
