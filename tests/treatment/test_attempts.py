"""Whatever goes wrong in an attempt is one failed attempt and no more."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from akeso.treatment import Edit, Prescription
from akeso.treatment.recipe import Recipe
from akeso.treatment.recipe_program import RecipeProgram

X = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


class Touchy(nn.Module):
    """Comes to grief in training mode once it is asked to."""

    def __init__(self, grief: Any) -> None:
        super().__init__()
        self.net, self.grief, self.calls = (
            nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)),
            grief,
            0,
        )

    def forward(self, x: Tensor) -> Tensor:
        self.calls += self.training
        if self.calls == 3:
            self.grief()
        return self.net(x)


def program(grief: Any, **options: Any) -> RecipeProgram:
    return RecipeProgram(
        Recipe(
            lambda: Touchy(grief),
            (X, Y),
            (X, Y),
            optimizer="Adam",
            lr=1e-2,
            epochs=3,
            batch_size=16,
            **options,
        )
    )


def _raise() -> None:
    raise ZeroDivisionError("by zero")


def _hang() -> None:
    while True:
        pass


def _exit() -> None:
    sys.exit(3)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize(
    ("grief", "told"), [(_raise, "ZeroDivisionError: by zero"), (_exit, "SystemExit: 3")]
)
def test_an_attempt_that_raises_or_exits(grief: Any, told: str, isolate: bool) -> None:
    runner = program(grief, isolate=isolate)
    attempt = runner.attempt(Prescription())
    assert attempt.failed == told
    assert not attempt.whole
    runner.close()
    assert torch._C._len_torch_function_stack() == 0


@pytest.mark.parametrize("isolate", [False, True])
def test_an_attempt_that_hangs_runs_out_of_time(isolate: bool) -> None:
    attempt = program(_hang, isolate=isolate, time_limit=1.0).attempt(Prescription())
    assert attempt.failed == "ran longer than 1 seconds"


def test_an_attempt_that_is_killed() -> None:
    attempt = program(_kill, isolate=True).attempt(Prescription())
    assert attempt.failed == "the process ended with signal 9"


def test_an_isolated_attempt_brings_its_weights_home() -> None:
    apart = program(lambda: None, isolate=True).attempt(Prescription())
    here = program(lambda: None).attempt(Prescription())
    assert apart.whole
    assert apart.metric == here.metric
    for one, other in zip(apart.model.parameters(), here.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_model_that_cannot_be_built() -> None:
    def build() -> nn.Module:
        raise RuntimeError("no such layer")

    runner = RecipeProgram(Recipe(build, (X, Y), (X, Y)))
    attempt = runner.attempt(Prescription())
    assert attempt.failed == "RuntimeError: no such layer"
    assert attempt.steps == 0


def test_ctrl_c_comes_out() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program(interrupt).attempt(Prescription())


def test_weights_that_are_not_finite_end_the_run() -> None:
    recipe = Recipe(
        lambda: nn.Linear(4, 2),
        (X, Y),
        (X, Y),
        optimizer=lambda p: torch.optim.SGD(p, lr=float("inf")),
        epochs=20,
    )
    attempt = RecipeProgram(recipe).attempt(Prescription())
    assert attempt.failed == "weights are not finite"
    assert attempt.steps < 40
    assert attempt.metric == 0.0


def test_an_edit_that_raises_is_refused_and_the_rest_goes_on() -> None:
    edits = Prescription([Edit("substitute-activation", "hidden", {"to": "NoSuch"}), Edit("clip-gradient")])
    attempt = program(lambda: None).attempt(edits)
    assert attempt.whole
    assert {edit.remedy for edit, _ in attempt.refused} == {"substitute-activation", "clip-gradient"}
    assert all(reason for _, reason in attempt.refused)
