"""Recipes: forms they take, errors that teach, trainings that are the same each time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import akeso
from akeso.errors import BadInput
from akeso.treatment import Edit, Prescription
from akeso.treatment.metrics import resolve
from akeso.treatment.recipe import Recipe
from akeso.treatment.recipe_program import RecipeProgram
from tests.treatment.programs import sick

X = torch.randn(96, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] + X[:, 1] > 0).long()


class Own(Dataset[Any]):
    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return X[index], Y[index]


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 2))


def recipe(**changes: Any) -> Recipe:
    parts: dict[str, Any] = {
        "model": build, "train": (X, Y), "val": (X[:40], Y[:40]), "loss": nn.CrossEntropyLoss(), "optimizer": "Adam",
        "lr": 1e-2, "epochs": 4, "batch_size": 16,
    }  # fmt: skip
    return Recipe(**{**parts, **changes})


def plain(program: Recipe) -> Any:
    return RecipeProgram(program).attempt(Prescription())


@pytest.mark.parametrize(
    "train",
    [(X, Y), (X.numpy(), Y.numpy()), TensorDataset(X, Y), Own(), DataLoader(Own(), batch_size=16, shuffle=True),
     DataLoader(TensorDataset(X, Y), batch_size=16, shuffle=True)],
    ids=["tensors", "arrays", "tensor dataset", "dataset", "loader", "tensor loader"],
)  # fmt: skip
def test_data_in_every_form(train: Any) -> None:
    attempt = plain(recipe(train=train))
    assert attempt.failed is None
    assert attempt.whole
    assert attempt.steps == attempt.planned_steps == 24
    assert attempt.metric_name == "val_accuracy"
    assert attempt.metric > 0.6


@pytest.mark.parametrize(
    "optimizer",
    ["sgd", torch.optim.SGD, ("SGD", {"momentum": 0.9}), lambda p: torch.optim.SGD(p, lr=0.1),
     torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1, momentum=0.5)],
    ids=["name", "class", "tuple", "function", "instance"],
)  # fmt: skip
def test_optimizers_in_every_form(optimizer: Any) -> None:
    made = recipe(optimizer=optimizer).make_optimizer(nn.Linear(2, 2).parameters())
    assert isinstance(made, torch.optim.SGD)


def test_a_model_object_is_never_touched_and_starts_every_run() -> None:
    torch.manual_seed(3)
    model = build()
    before = [p.detach().clone() for p in model.parameters()]
    first, second = plain(recipe(model=model)), plain(recipe(model=model))
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert first.metric == second.metric


def test_a_fifth_is_held_out_when_there_is_no_val() -> None:
    made = recipe(val=None)
    assert made._train.size == 77
    assert made._val.size == 19


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"model": 3}, "model must be"), ({"epochs": 0}, "epochs must be"), ({"loss": "crossentropy"}, "crossentropy"),
     ({"loss": nn.CrossEntropyLoss}, r"loss=CrossEntropyLoss\(\)"), ({"optimizer": "Adamant"}, "Adamant"),
     ({"optimizer": 7}, "optimizer must be"), ({"train": (X, Y[:5])}, r"different lengths: \[96, 5\]"),
     ({"train": "data.csv"}, "train must be"), ({"train": (X[:0], Y[:0])}, "no samples"),
     ({"batch_size": -1}, "batch_size"), ({"scheduler_every": "week"}, "scheduler_every")],
)  # fmt: skip
def test_errors_say_what_was_given(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        recipe(**changes)


def test_the_same_seed_gives_the_same_bits_also_when_stopped_and_gone_on_with() -> None:
    whole = plain(recipe())
    program = RecipeProgram(recipe())
    program.attempt(Prescription(), max_steps=7)
    program.attempt(Prescription([Edit("clip-gradient", "", {"kind": "norm", "limit": 1.0})]), max_steps=5)
    torch.rand(3)
    again = program.attempt(Prescription())
    assert again.steps == 24
    assert again.spent == 17
    assert again.curve[-1] == whole.curve[-1]
    states = (whole.model.state_dict(), again.model.state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    other = RecipeProgram(recipe()).attempt(Prescription(), seed=1)
    assert any(not torch.equal(states[0][key], other.model.state_dict()[key]) for key in states[0])


def test_the_callers_random_state_is_left_alone() -> None:
    torch.manual_seed(5)
    np.random.seed(5)
    expected = torch.Generator().manual_seed(5).get_state()
    plain(recipe(epochs=1))
    assert torch.equal(torch.get_rng_state(), expected)


def test_a_metric_without_a_name_is_called_one() -> None:
    assert resolve(lambda output, target: 1.0, None, None, "unknown", "custom", "none").name == "metric"


@pytest.mark.parametrize(
    ("metric", "better"), [("f1", True), ("loss", False), (lambda o, t: float(o.sum()), True)]
)
def test_metrics_by_name_and_function(metric: Any, better: bool) -> None:
    attempt = plain(recipe(metric=metric, epochs=1))
    assert attempt.higher_is_better is better
    assert attempt.metric is not None


@pytest.mark.parametrize(
    ("out", "target", "loss", "name"),
    [(1, Y.float().unsqueeze(1), nn.BCEWithLogitsLoss(), "val_accuracy"), (1, X[:, :1], nn.MSELoss(), "val_r2"),
     (3, X[:, :3], nn.L1Loss(), "val_r2"), (2, torch.eye(2)[Y], nn.MSELoss(), "val_accuracy")],
)  # fmt: skip
def test_the_metric_is_inferred_from_the_task(out: int, target: Any, loss: Any, name: str) -> None:
    made = recipe(model=lambda: nn.Linear(4, out), train=(X, target), val=(X, target), loss=loss, epochs=1)
    assert plain(made).metric_name == name


def test_schedulers_step_once_an_epoch_or_once_a_step() -> None:
    def rates(every: str) -> float:
        seen: list[Any] = []

        def scheduler(optimizer: Any) -> Any:
            seen.append(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5))
            return seen[-1]

        plain(recipe(scheduler=scheduler, scheduler_every=every, epochs=2))
        return float(seen[-1].get_last_lr()[0])

    assert rates("epoch") == pytest.approx(1e-2 / 4)
    assert rates("step") == pytest.approx(1e-2 / 2**12)


@pytest.mark.parametrize(("no", "yes"), [(-1.0, 1.0), (0.0, 255.0), (1.0, 2.0)])
def test_whatever_stands_for_yes_and_no_is_understood(no: float, yes: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 4, generator=generator)
    y = torch.where(x[:, :1] + x[:, 1:2] > 0, yes, no)
    outcome = akeso.treat(
        recipe(model=lambda: nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)), train=(x[:300], y[:300]),
               val=(x[300:], y[300:]), loss=nn.BCEWithLogitsLoss(), epochs=8)
    )  # fmt: skip
    assert (outcome.status, outcome.metric) == ("repaired", "val_accuracy")
    assert outcome.prescription.of("scale-targets")
    assert outcome.after is not None
    assert outcome.after > 0.9


EDITS = [
    Edit("set-batch-size", "", {"to": 48}), Edit("scale-inputs"), Edit("set-learning-rate", "", {"to": 0.5}),
    Edit("set-learning-rate", "", {"factor": 0.1}),
    Edit("substitute-optimizer", "", {"to": "SGD", "lr": 0.1, "momentum": 0.9}),
    Edit("warm-up", "", {"steps": 6}), Edit("weight-classes"), Edit("set-output-bias", "", {"to": "prior"}),
    Edit("substitute-loss", "", {"to": "cross_entropy"}), Edit("fix-broadcast"), Edit("mean-reduction"),
    Edit("find-learning-rate", "", {"low": 1e-5, "high": 1.0, "steps": 12}), Edit("set-weight-decay", "", {"to": 0.0}),
    Edit("set-dropout", "", {"to": 0.0}), Edit("roll-back", "", {"step": 5, "skip": 2, "factor": 0.5}),
    Edit("insert-normalisation", "hidden", {"kind": "batch"}), Edit("reinitialise", "", {"scheme": "orthogonal"}),
]  # fmt: skip


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.describe())
def test_every_edit_is_made_and_changes_the_training(edit: Edit) -> None:
    attempt = RecipeProgram(recipe(epochs=2)).attempt(Prescription([edit]))
    assert attempt.failed is None
    assert attempt.refused == ()
    assert attempt.metric is not None
    if edit.remedy not in ("substitute-loss", "fix-broadcast", "set-weight-decay"):
        before = plain(recipe(epochs=2))
        same = attempt.curve == before.curve and all(
            torch.equal(a, b)
            for a, b in zip(attempt.model.parameters(), before.model.parameters(), strict=False)
        )
        assert not same


@pytest.mark.parametrize("loss", [nn.PoissonNLLLoss(), nn.functional.poisson_nll_loss])
def test_a_loss_of_counts_that_is_given_rates_is_told_so(loss: Any) -> None:
    x = torch.randn(200, 4)
    data = (x, torch.poisson(torch.exp(x[:, :1])))

    class Rate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.line(x).exp()

    told = Edit(
        "substitute-loss", "", {"from": "poisson_nll_loss", "to": "poisson_nll_loss", "log_input": False}
    )
    parts = recipe(model=Rate, train=data, val=data, loss=loss, lr=0.05, epochs=4, metric="r2")
    cured, plainly = RecipeProgram(parts).attempt(Prescription([told])), plain(parts)
    assert not cured.refused
    assert cured.metric is not None
    assert plainly.metric is not None
    assert cured.metric > plainly.metric + 0.2
    other = RecipeProgram(recipe(epochs=1)).attempt(Prescription([told]))
    assert "not made for counts" in other.refused[0][1]


def test_cosines_get_a_factor() -> None:
    x = torch.randn(400, 12, generator=torch.Generator().manual_seed(0))
    data = (x, x.argmax(1))

    class Cosines(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line, self.classes = nn.Linear(12, 32), nn.Parameter(torch.randn(12, 32))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.normalize(self.line(x)) @ nn.functional.normalize(self.classes).T

    parts = recipe(model=Cosines, train=data, val=data, loss="cross_entropy", lr=0.01, epochs=8)
    factor = Edit("scale-logits", "", {"factor": 14.0})
    cured, plainly = RecipeProgram(parts).attempt(Prescription([factor])), plain(parts)
    assert not cured.refused
    first, last = (one.history.series("loss").values[-10:].mean() for one in (plainly, cured))
    assert last < 0.7 * first
    assert (cured.metric or 0.0) >= (plainly.metric or 1.0)
    other = RecipeProgram(recipe(loss="mse_loss", epochs=1)).attempt(Prescription([factor]))
    assert "no logits" in other.refused[0][1]


def test_what_a_recipe_does_already_is_refused() -> None:
    program = RecipeProgram(recipe())
    for name in ("add-zero-grad", "set-mode"):
        assert "already" in str(program.refuses(Edit(name)))
    assert program.refuses(Edit("clip-gradient", "", {"limit": 1.0})) is None


def test_standardised_targets_come_back_in_their_units() -> None:
    target = 1e4 * X[:, :1] + 5e5
    made = recipe(
        model=lambda: nn.Linear(4, 1), train=(X, target), val=(X, target), loss="mse_loss", epochs=12, lr=5e-2
    )
    untreated = plain(made)
    treated = RecipeProgram(made).attempt(Prescription([Edit("standardise-targets")]))
    assert untreated.metric < 0 < 0.9 < treated.metric
    with torch.no_grad():
        assert float((treated.model(X) - target).abs().mean()) < 3e3


def test_missing_and_far_out_inputs_are_cleaned_and_listed() -> None:
    dirty = X.clone()
    dirty[3, 0], dirty[4, 1] = float("nan"), 1e7
    made = recipe(train=(dirty, Y))
    assert plain(made).metric == 0.0 or not plain(made).whole
    treated = RecipeProgram(made).attempt(Prescription([Edit("scale-inputs")]))
    assert treated.metric > 0.6
    assert "not finite in features 0 (1)" in " ".join(treated.notes)


@pytest.mark.parametrize("isolate", [False, True])
def test_the_model_handed_over_takes_raw_inputs(isolate: bool) -> None:
    raw = 1000 * X
    program = RecipeProgram(recipe(train=(raw, Y), val=(raw, Y), isolate=isolate, epochs=2))
    treated = program.attempt(Prescription([Edit("scale-inputs")]))
    model = program.hand_over(treated).eval()
    with torch.no_grad():
        share = float((model(raw).argmax(1) == Y).float().mean())
    assert share == pytest.approx(treated.metric)
    assert "akeso_inputs.centre" in model.state_dict()


class Functional(nn.Module):
    """Two kinds of activations, both called as functions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.last(torch.relu(self.first(value))))


def test_a_function_that_was_taken_off_stays_off_after_an_evaluation() -> None:
    values = X[:, :1] * 3 + X[:, 1:2]
    program = RecipeProgram(
        recipe(model=Functional, train=(X, values), val=(X, values), loss=nn.MSELoss(), epochs=20)
    )
    cure = Prescription([Edit("substitute-activation", "output", {"to": "none"})])
    program.attempt(cure, max_steps=30)
    attempt = program.attempt(cure)
    program.close()
    assert attempt.metric is not None
    assert attempt.metric > 0.9
    with torch.no_grad():
        assert float(attempt.model(X).max()) > 1.5


class Squares(nn.Module):
    """An activation that the watch does not know as one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.last(torch.square(self.first(value)))  # type: ignore[no-any-return]


def test_the_recipe_knows_activations_that_the_watch_does_not() -> None:
    attempt = plain(recipe(model=Squares, epochs=1))
    assert list(attempt.history.facts["activations"].values()) == ["Square"]


def test_a_root_of_zero_in_the_loss_no_longer_breaks_the_weights() -> None:
    """The distance of a prediction from a target that it meets exactly has no slope."""
    x = torch.randn(96, 3)
    y = torch.zeros(96, 1)

    def build() -> nn.Module:
        model = nn.Linear(3, 1)
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
        return model

    def distance(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.sqrt((output - target).square().sum(1)).mean() + 0.1 * (output - 1).square().mean()

    recipe = Recipe(build, (x, y), (x, y), loss=distance, optimizer="SGD", epochs=2, batch_size=32)
    broken = RecipeProgram(recipe).attempt(Prescription())
    sound = RecipeProgram(recipe).attempt(Prescription([Edit("guard-functions")]))
    assert torch._C._len_torch_function_stack() == 0
    assert broken.failed or broken.metric is None or not math.isfinite(broken.metric)
    assert sound.metric is not None
    assert math.isfinite(sound.metric)


def test_a_sigmoid_that_is_put_on_the_output_is_judged_as_one() -> None:
    """A loss of the user's own says nothing of where yes begins."""
    y = (X[:, :1] > 0).float()

    def by_hand(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        p = output.clamp(1e-7, 1 - 1e-7)
        return -(target * p.log() + (1 - target) * (1 - p).log()).mean()

    program = RecipeProgram(
        recipe(model=lambda: nn.Linear(4, 1), train=(X, y), val=(X, y), loss=by_hand, epochs=20)
    )
    cure = Prescription([Edit("substitute-activation", "output", {"from": "none", "to": "Sigmoid"})])
    attempt = program.attempt(cure)
    program.close()
    assert attempt.history.facts["loss"] == "binary_cross_entropy"
    assert attempt.metric is not None
    assert attempt.metric > 0.9


def _fading() -> Recipe:
    """A few samples with labels of chance: the longer it trains, the worse it gets on others."""
    noisy = torch.where(torch.rand(96, generator=torch.Generator().manual_seed(3)) < 0.35, 1 - Y, Y)
    own = (X[:24], noisy[:24])
    return recipe(model=lambda: nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2)), train=own,
                  val=(X[40:], Y[40:]), epochs=60, lr=2e-2)  # fmt: skip


def test_the_weights_of_the_best_evaluation_can_be_kept() -> None:
    program = RecipeProgram(_fading())
    last = program.attempt(Prescription())
    best = max(value for _, value in last.curve)
    assert last.metric == last.curve[-1][1] < best
    kept = RecipeProgram(_fading()).attempt(Prescription([Edit("keep-best-weights")]))
    assert kept.metric == best
    assert kept.curve == last.curve
    assert float((kept.model(X[40:]).argmax(1) == Y[40:]).float().mean()) == pytest.approx(best)
    again = program.at_its_best(last)
    assert again is not None
    assert again.metric == best
    assert again.spent == 0
    assert again.prescription == Prescription([Edit("keep-best-weights")])
    pairs = zip(again.model.parameters(), kept.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert program.at_its_best(last) is None, "it goes by another prescription now"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": "a"}, "seed must be a whole number"),
        ({"time_limit": -1.0}, "time_limit must be a positive"),
        ({"device": "banana"}, "cannot be trained on here"),
        ({"metric": "bogus"}, "metric must be a function or one of"),
    ],
)
def test_circumstances_that_cannot_be_are_refused_at_once(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        sick(**changes)


def test_a_training_that_fails_by_itself_says_why() -> None:
    def broken(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError("division by zero")

    outcome = akeso.treat(sick(loss=broken))
    assert outcome.status == "failed"
    assert "ZeroDivisionError: division by zero" in str(outcome)
    assert any("ZeroDivisionError" in note for note in outcome.notes)
    assert "hopeless" not in str(outcome)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": "2"}, "budget must be"),
        ({"target": "x"}, "target must be a number"),
        ({"target": math.nan}, "target must be a number"),
        ({"only": "reinitialise"}, "lists of remedies"),
        ({"seed": 1.5}, "seed must be a whole number"),
    ],
)
def test_bad_wishes_are_refused_before_anything_is_trained(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        akeso.treat(recipe(epochs=1), **options)


@pytest.mark.parametrize("rate", [-1.0, 0.0, math.inf, math.nan, "fast"])
def test_a_rate_that_is_none_is_refused(rate: Any) -> None:
    with pytest.raises(BadInput, match="lr must be a positive number"):
        recipe(lr=rate)


def test_inputs_may_come_as_a_mapping_beside_the_target() -> None:
    class Pairs(Dataset[Any]):
        def __len__(self) -> int:
            return 48

        def __getitem__(self, index: int) -> Any:
            return {"a": torch.ones(2) * (index % 2), "b": torch.zeros(1)}, index % 2

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, batch: Any) -> Any:
            return self.layer(torch.cat([batch["a"], batch["b"]], 1))

    loader = DataLoader(Pairs(), 16, shuffle=True)
    outcome = akeso.treat(recipe(model=Both, train=loader, val=loader, epochs=10, lr=0.1))
    assert outcome.status == "healthy"
    assert outcome.after == 1.0
