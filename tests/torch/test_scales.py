"""One scale for what training, validation and a constant prediction give, and what a model does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import akeso
from akeso.detectors.standing import standing, validation_loss
from akeso.torch.inputs import Far, far_off
from akeso.torch.losses import LossCall
from akeso.torch.task import hits

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class _Listed(nn.Module):
    """Layers in a plain list, which torch does not see."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = [nn.Linear(6, 6) for _ in range(2)]
        self.out = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.hidden:
            x = torch.relu(layer(x))
        return self.out(x)


def _train(model: nn.Module, parameters: Iterator[nn.Parameter]) -> akeso.Watch:
    x = torch.randn(32, 6)
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(40):
            optimizer.zero_grad()
            F.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
            optimizer.step()
    return watch


def test_layers_in_a_list_are_seen_unless_they_are_optimized_all_the_same() -> None:
    model = _Listed()
    events = _train(model, model.parameters()).history.events_of("detached")
    assert {event.scope: event.data["reason"] for event in events} == {
        f"Linear{number}.{name}": "unregistered" for number in (0, 1) for name in ("weight", "bias")
    }
    model = _Listed()
    everything = [*model.parameters(), *(p for layer in model.hidden for p in layer.parameters())]
    assert not _train(model, iter(everything)).history.events_of("detached")


@pytest.mark.parametrize(
    "loss",
    [
        F.mse_loss,
        lambda prediction, target: F.mse_loss(prediction, target, reduction="sum"),
        lambda prediction, target: F.mse_loss(prediction, target, reduction="sum") / len(target),
        lambda prediction, target: 0.5 * F.mse_loss(prediction, target),
        lambda prediction, target: F.mse_loss(prediction, target, reduction="sum") / len(target) / 0.1,
    ],
    ids=["mean", "sum", "per sample", "half", "per sample, times ten"],
)
def test_whatever_the_reduction_losses_can_be_compared(loss: Loss) -> None:
    torch.manual_seed(0)
    x = torch.randn(512, 8)
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)  # untrained, it stays what it is
    with akeso.watch(model, optimizer) as watch:
        for _ in range(4):
            for part in x[:384].split(32):
                optimizer.zero_grad()
                loss(model(part), part).backward()
                optimizer.step()
            with torch.no_grad():
                loss(model(x[384:]), x[384:])
    stand = standing(watch.history)
    truth = float(F.mse_loss(model(x).detach(), x) / x.var(0, correction=0).mean())
    assert stand.remaining_loss == pytest.approx(truth, rel=0.1)
    assert float(validation_loss(watch.history).values[-1]) / stand.baseline == pytest.approx(truth, rel=0.15)


@pytest.mark.parametrize("columns", [1, 5, 300])
@pytest.mark.parametrize(
    "loss",
    [nn.L1Loss(), nn.SmoothL1Loss(), nn.SmoothL1Loss(beta=0.2), nn.HuberLoss(), nn.HuberLoss(delta=3.0)],
    ids=["l1", "smooth", "smooth, little", "huber", "huber, much"],
)
def test_a_constant_for_each_output_is_known_for_losses_of_the_distance(
    loss: nn.Module, columns: int
) -> None:
    torch.manual_seed(0)
    y = torch.randn(16, columns) * torch.linspace(0.5, 2.0, columns) + 3.0 * torch.arange(columns)
    y = y.repeat(32, 1)  # every batch says the same, whichever are looked at, and every half of one
    model = nn.Linear(4, columns)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with akeso.watch(model, optimizer, budget=1.0) as watch:  # every look that can be had
        for _ in range(4):
            for part in y.split(32):
                optimizer.zero_grad()
                loss(model(torch.zeros(len(part), 4)), part).backward()
                optimizer.step()
    found = standing(watch.history).baseline
    if columns > 256:
        assert found != found  # of so many only some are seen, and those need not be like the rest
        return
    constants = (y.median(0).values, y.mean(0))
    assert found == pytest.approx(min(float(loss(one.expand_as(y), y)) for one in constants), rel=0.15)


def test_an_answer_before_a_loss_of_signs_is_yes_above_zero() -> None:
    output, target = torch.tensor([[0.3], [-0.2], [0.4]]), torch.tensor([[1.0], [0.0], [1.0]])
    found = hits(LossCall("soft_margin_loss", output, target, None), "binary")
    assert found is not None
    assert int(found[0]) == 3


def test_what_a_data_loader_does_is_not_followed() -> None:
    data, held_out = (
        TensorDataset(torch.randn(256, 4), torch.zeros(256, dtype=torch.int64)) for _ in range(2)
    )
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(3):
            for x, y in DataLoader(data, 64):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            with torch.no_grad():
                before = watch._probe._passes.function_calls
                for x, y in DataLoader(held_out, 128):
                    (model(x).argmax(1) == y).sum()
                # batches of 128 samples are made of hundreds of tensor operations
                assert watch._probe._passes.function_calls - before < 40
    assert len(watch.history.series("val_accuracy")) == 3


def test_passes_without_gradients_at_every_step_are_thinned() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(400):
            with torch.no_grad():
                target = model(x).argmax(1)
            optimizer.zero_grad()
            F.cross_entropy(model(x), target).backward()
            optimizer.step()
    assert watch._probe._evaluations._phases.total() < 200
    assert watch.history.steps == 400


@pytest.mark.parametrize(
    ("targets", "task"),
    [
        (torch.linspace(-2, 2, 32), "regression"),
        (torch.linspace(0, 1, 32), "binary"),
        (torch.arange(32.0) % 2, "binary"),
        (2 * (torch.arange(32.0) % 2) - 1, "binary"),
    ],
)
def test_the_task_is_that_of_the_targets_whatever_loss_they_are_given_to(
    targets: torch.Tensor, task: str
) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(32, 4)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(4):
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(model(inputs)[:, 0], targets).backward()
            optimizer.step()
    assert watch.history.facts["task"] == task


def test_what_is_made_of_answers_after_no_grad_is_validation_all_the_same() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, labels = torch.randn(64, 4), torch.randint(0, 2, (64,))
    unseen, wanted = torch.randn(50, 4), torch.randint(0, 2, (50,))
    with akeso.watch(model, optimizer) as watch:
        for _ in range(3):
            model.train()
            for rows in torch.arange(64).split(16):
                optimizer.zero_grad()
                F.cross_entropy(model(inputs[rows]), labels[rows]).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                answers = model(unseen)
            F.cross_entropy(answers, wanted).item()
            (answers.argmax(1) == wanted).float().mean().item()
    assert len(watch.history.series("val_loss")) == 3
    assert [event.data["samples"] for event in watch.history.events_of("evaluation")] == [50, 50, 50]


def test_a_head_that_was_replaced_has_its_name_and_its_reason() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with akeso.watch(model, optimizer) as watch:
        for step in range(60):
            if step == 10:
                model[2] = nn.Linear(8, 2)
            optimizer.zero_grad()
            F.cross_entropy(model(torch.randn(16, 4)), torch.randint(0, 2, (16,))).backward()
            optimizer.step()
    found = {event.scope: event.data["reason"] for event in watch.history.events_of("detached")}
    assert found == {"2.weight": "not-in-optimizer", "2.bias": "not-in-optimizer"}


def test_a_parameter_without_elements_has_nothing_to_learn() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    model.register_parameter("device_of", nn.Parameter(torch.empty(0)))
    assert not _train(model, model.parameters()).history.events_of("detached")


def test_a_frozen_backbone_in_evaluation_mode_is_no_mistake() -> None:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.1))
    model = nn.Sequential(body, nn.Linear(8, 2)).eval()
    for frozen in (True, False):
        body.requires_grad_(not frozen)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        with akeso.watch(model, optimizer) as watch:
            for _ in range(20):
                optimizer.zero_grad()
                F.cross_entropy(model(torch.randn(16, 4)), torch.randint(0, 2, (16,))).backward()
                optimizer.step()
        assert bool(watch.history.events_of("training-mode")) is not frozen


def test_a_constant_answer_pays_for_weighted_positives_too() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    inputs, labels = torch.randn(100, 4), (torch.arange(100) % 10 == 0).float()
    weight = torch.tensor([9.0])
    with akeso.watch(model, optimizer) as watch:
        for _ in range(4):
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(model(inputs)[:, 0], labels, pos_weight=weight).backward()
            optimizer.step()
    # Nine times a tenth against nine tenths: even odds, 1.8 times the logarithm of two.
    constant = F.binary_cross_entropy_with_logits(torch.zeros(100), labels, pos_weight=weight).item()
    assert watch.history.series("baseline_loss").values[-1] == pytest.approx(constant, rel=1e-3)


def _targets_watched(inputs: torch.Tensor, loss: Callable[[torch.Tensor], torch.Tensor]) -> akeso.Watch:
    model = nn.Linear(inputs.shape[1], 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(4):
            optimizer.zero_grad()
            loss(model(inputs)).backward()
            optimizer.step()
    return watch


def test_a_constant_answer_to_rows_of_probabilities_is_their_mean() -> None:
    torch.manual_seed(0)
    rows = F.one_hot(torch.arange(100) % 10 // 4, 3).float()  # shares of 0.4, 0.4 and 0.2
    inputs, weight = torch.randn(100, 4), torch.tensor([1.0, 2.0, 4.0])
    watch = _targets_watched(inputs, lambda out: F.cross_entropy(out, rows))
    best = rows.mean(0).log().expand(100, 3)
    constant = F.cross_entropy(best, rows).item()
    assert watch.history.series("baseline_loss").values[-1] == pytest.approx(constant, rel=1e-3)

    watch = _targets_watched(
        inputs, lambda out: F.cross_entropy(out, rows, weight=weight, label_smoothing=0.2)
    )
    best = (weight * (0.8 * rows.mean(0) + 0.2 / 3)).log().expand(100, 3)
    constant = F.cross_entropy(best, rows, weight=weight, label_smoothing=0.2).item()
    assert watch.history.series("baseline_loss").values[-1] == pytest.approx(constant, rel=1e-3)


def test_targets_left_out_of_the_loss_are_no_class() -> None:
    torch.manual_seed(0)
    inputs, labels = torch.randn(100, 4), torch.arange(100) % 10 // 4
    watch = _targets_watched(inputs, lambda out: F.cross_entropy(out, labels, ignore_index=0))
    history = watch.history
    assert history.series("target_ignored").values[-1] == pytest.approx(0.4)
    assert history.series("target_top_share").values[-1] == pytest.approx(2 / 3)
    shares = torch.tensor([2 / 3, 1 / 3])
    assert history.series("baseline_loss").values[-1] == pytest.approx(
        float(-(shares * shares.log()).sum()), rel=1e-3
    )
    watch = _targets_watched(inputs, lambda out: F.cross_entropy(out, labels))
    assert not watch.history.series("target_ignored")


@pytest.mark.parametrize(("offset", "expected"), [(0.0, 1.0), (100.0, 0.01)])
def test_how_much_samples_differ_is_read_against_their_size(offset: float, expected: float) -> None:
    torch.manual_seed(0)
    labels = torch.randint(0, 3, (256,))
    watch = _targets_watched(torch.randn(256, 8) + offset, lambda out: F.cross_entropy(out, labels))
    assert watch.history.series("input_sample_std").values[-1] == pytest.approx(expected, rel=0.1)


def test_features_made_under_no_grad_are_no_evaluation() -> None:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU()).eval().requires_grad_(False)
    head = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    inputs, labels = torch.randn(64, 4), torch.randint(0, 2, (64,))
    with akeso.watch() as watch:
        for _ in range(2):
            body.eval()
            head.train()
            for rows in torch.arange(64).split(16):
                with torch.no_grad():
                    features = body(inputs[rows])
                optimizer.zero_grad()
                F.cross_entropy(head(features), labels[rows]).backward()
                optimizer.step()
    assert not watch.history.events_of("evaluation")


def test_a_kernel_of_which_only_the_middle_sees_data_is_seen_to_change() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.Flatten(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(32, 64, 1, 1), torch.arange(32) % 2
    with akeso.watch(model, optimizer) as watch:
        for _ in range(80):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert watch.history.series("update_ratio", "0.weight").values.min() > 0
    assert "parameters-not-trained" not in [found.problem for found in watch.diagnoses]


def test_a_constant_answer_to_wide_images_is_drawn_from_all_over_them() -> None:
    torch.manual_seed(0)
    images = (torch.rand(100, 784) < 0.5).float()
    images[:, :300] = 0.0  # an empty rim
    model = nn.Linear(784, 784)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(4):
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(model(images), images).backward()
            optimizer.step()
    mean = images.mean(0).expand_as(images)
    constant = F.binary_cross_entropy(mean, images).item()
    assert watch.history.series("baseline_loss").values[-1] == pytest.approx(constant, rel=0.01)


@pytest.mark.filterwarnings("ignore:size_average and reduce args")
@pytest.mark.parametrize("how", [{"reduction": "sum"}, {"size_average": False}])
def test_a_loss_summed_the_old_way_is_a_sum(how: dict[str, object]) -> None:
    torch.manual_seed(0)
    inputs, targets = torch.randn(50, 4), torch.randn(50, 3)
    watch = _targets_watched(inputs, lambda out: F.mse_loss(out, targets, **how))  # type: ignore[arg-type]
    constant = float(((targets - targets.mean(0)) ** 2).sum())
    assert standing(watch.history).baseline == pytest.approx(constant, rel=0.01)


def test_of_all_losses_that_a_step_tries_the_last_one_counts() -> None:
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(6))
    x = torch.randn(64, 6)
    y = x @ torch.arange(6.0)
    optimizer = torch.optim.LBFGS([weight], max_iter=4)
    tried: list[list[float]] = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(x @ weight, y)
        loss.backward()
        tried[-1].append(loss.item())
        return loss

    with akeso.watch() as watch:
        for _ in range(12):
            tried.append([])
            optimizer.step(closure)
    assert len(tried[0]) > 2
    assert watch.history.series("loss").values.tolist() == pytest.approx([losses[-1] for losses in tried])


def test_the_root_of_a_loss_is_measured_by_the_root_of_a_constant_s() -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Linear(4, 1), torch.randn(256, 4)
    y = 30.0 + 7.0 * torch.randn(256, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(10):
            optimizer.zero_grad()
            torch.sqrt(F.mse_loss(model(x), y)).backward()
            optimizer.step()
    assert watch.history.series("baseline_loss").values[-1] == pytest.approx(float(y.std()), rel=0.02)


def test_a_divergence_that_is_validated_sample_by_sample_is_a_sum_over_classes() -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Linear(4, 10), torch.randn(96, 4)
    y = F.one_hot(torch.randint(0, 10, (96,)), 10).float() * 0.9 + 0.01
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def loss(rows: slice) -> torch.Tensor:
        scores = F.log_softmax(model(x[rows]), 1)
        return F.kl_div(scores, y[rows], reduction="none").sum(-1).mean()

    with akeso.watch(model, optimizer) as watch:
        for _ in range(4):
            optimizer.zero_grad()
            loss(slice(64)).backward()
            optimizer.step()
            with torch.no_grad():
                value = loss(slice(64, 96))
    assert watch.history.series("val_loss").values[-1] == pytest.approx(value.item(), rel=1e-4)


def test_a_pixel_that_is_lit_now_and_then_is_no_value_far_off() -> None:
    torch.manual_seed(0)
    shades = torch.rand(32, 1)
    corner = torch.where(torch.arange(32) < 20, 0.0, 0.01 * torch.rand(32))
    corner[31] = 1.0
    dark = {"input_columns": torch.stack([shades[:, 0], corner], 1).reshape(-1), "input_column_rows": 32}
    assert (far_off("input", dark)[0] or Far(0.0, 0.0, 0)).off < 10.0
    coded = shades.clone()
    coded[31] = -99.0
    assert far_off("input", {"input_columns": coded.reshape(-1), "input_column_rows": 32})[0] is not None


@pytest.mark.parametrize(
    ("brought_to_one", "factor"),
    [
        (lambda parts: parts.mean(), 1.0),
        (lambda parts: parts.sum(1).mean(), 8.0),
        (lambda parts: parts.sum(), 8.0 * 64),
        (lambda parts: 5.0 * parts.mean(), 5.0),
    ],
)
def test_what_a_script_adds_up_itself_is_measured_by_a_constant_prediction_as_well(
    brought_to_one: Callable[[torch.Tensor], torch.Tensor], factor: float
) -> None:
    torch.manual_seed(0)
    x = torch.randn(512, 8)
    y = x @ torch.randn(8, 8) + 0.5 * torch.randn(512, 8)
    model = nn.Linear(8, 8)
    optimizer = torch.optim.Adam(model.parameters(), 0.03)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(30):
            for rows in torch.randperm(448).split(64):
                optimizer.zero_grad()
                brought_to_one(F.mse_loss(model(x[rows]), y[rows], reduction="none")).backward()
                optimizer.step()
            with torch.no_grad():
                brought_to_one(F.mse_loss(model(x[448:]), y[448:], reduction="none"))
    stand = standing(watch.history)
    constant = float(y.var(0, correction=0).mean())
    assert stand.baseline == pytest.approx(factor * constant, rel=0.1)
    left = F.mse_loss(model(x), y).item() / constant
    assert stand.remaining_loss == pytest.approx(left, rel=0.3)
    assert validation_loss(watch.history).values[-1] / stand.baseline == pytest.approx(left, rel=0.4)
    assert not [one for one in watch.diagnoses if one.severity != "info"]


@pytest.mark.parametrize("paired", [True, False])
def test_ratings_without_a_signal_are_told_where_a_model_is_made_of_nothing_but_embeddings(
    paired: bool,
) -> None:
    torch.manual_seed(0)
    users, items = nn.Embedding(60, 4), nn.Embedding(40, 4)
    liked, known = torch.randn(60, 2), torch.randn(40, 2)
    user, item = torch.randint(60, (4096,)), torch.randint(40, (4096,))
    rating = (liked[user] * known[item]).sum(1)
    optimizer = torch.optim.Adam([*users.parameters(), *items.parameters()], 0.02)
    for table in (users, items):
        nn.init.normal_(table.weight, std=0.1)
    with akeso.watch([users, items], optimizer) as watch:
        for _ in range(6):
            for rows in torch.randperm(4096).split(64):
                wanted = rating[rows] if paired else rating[torch.randperm(4096)[:64]]
                loss = F.mse_loss((users(user[rows]) * items(item[rows])).sum(1), wanted)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    found = [one.problem for one in watch.diagnoses if one.severity != "info"]
    assert found[:1] == ([] if paired else ["unlearnable-labels"])
