"""Losses, inputs, targets and optimizers changed from outside."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from akeso.errors import AkesoError, BadInput, Refused
from akeso.torch.surgery import (
    TaskLoss,
    averaged,
    build_optimizer,
    class_weights,
    loss_name,
    scale_rates,
    successor,
)
from akeso.torch.surgery.inputs import fit_scaler, scale_inputs, standardise_targets
from akeso.torch.surgery.losses import InUnits, Reconciled, weighted
from akeso.torch.surgery.optimizers import clip


def test_a_task_loss_takes_targets_in_any_form() -> None:
    logits, labels = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    expected = F.cross_entropy(logits, labels)
    loss = TaskLoss("cross_entropy")
    for target in (labels, labels.float(), labels.unsqueeze(1), torch.eye(3)[labels]):
        assert torch.allclose(loss(logits, target), expected)
    assert torch.allclose(
        TaskLoss("cross_entropy", "probabilities")(logits.softmax(1), labels), expected, atol=1e-5
    )
    single, truth = torch.randn(6, 1), torch.tensor([0, 1, 1, 0, 1, 0])
    binary = F.binary_cross_entropy_with_logits(single, truth.float().unsqueeze(1))
    assert torch.allclose(TaskLoss("binary_cross_entropy_with_logits")(single, truth), binary)
    assert torch.allclose(TaskLoss("cross_entropy")(single, 2 * truth - 1), binary)
    assert torch.allclose(TaskLoss("mse_loss")(single, truth), F.mse_loss(single, truth.float().unsqueeze(1)))
    with pytest.raises(BadInput, match="hinge"):
        TaskLoss("hinge")
    with pytest.raises(Refused, match="do not pair up"):
        TaskLoss("mse_loss")(single, torch.zeros(5))


def test_broadcasting_is_undone() -> None:
    output, target = torch.randn(8, 1), torch.randn(8)
    assert torch.allclose(Reconciled(F.mse_loss)(output, target), F.mse_loss(output.squeeze(1), target))


def test_a_summed_loss_is_averaged() -> None:
    output, target = torch.randn(8, 3), torch.randint(0, 3, (8,))
    mean = F.cross_entropy(output, target)
    for summed in (
        nn.CrossEntropyLoss(reduction="sum"), functools.partial(F.cross_entropy, reduction="sum"),
        lambda o, t: F.cross_entropy(o, t, reduction="sum"),
    ):  # fmt: skip
        assert torch.allclose(averaged(summed)(output, target), mean)


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), F.cross_entropy, TaskLoss("cross_entropy")])
def test_rare_classes_weigh_more(loss: object) -> None:
    labels = torch.tensor([0] * 9 + [1])
    weights = class_weights(labels, 2)
    assert float(weights[1] / weights[0]) == pytest.approx(9.0)
    heavy = weighted(loss, weights)  # type: ignore[arg-type]
    logits = torch.zeros(10, 2)
    logits[:, 0] = 3.0
    assert float(heavy(logits, labels)) > float(F.cross_entropy(logits, labels))
    with pytest.raises(Refused):
        weighted(F.l1_loss, weights)


def test_losses_are_known_by_name() -> None:
    assert loss_name(nn.MSELoss()) == loss_name(F.mse_loss) == "mse_loss"
    assert loss_name(lambda o, t: o.sum()) == "custom"
    assert loss_name(InUnits(nn.L1Loss(), torch.zeros(1), torch.ones(1))) == "l1_loss"


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def test_scaling_is_fitted_once_and_travels_with_the_model() -> None:
    torch.manual_seed(0)
    train = torch.randn(400, 3) * torch.tensor([1.0, 1e6, 1e-4]) + torch.tensor([0.0, 5e6, 0.0])
    train[7, 0] = float("nan")
    train[11, 1] = 1e15
    model = nn.Sequential(nn.Linear(3, 2))
    notes = scale_inputs(model, train)
    assert any("1 values not finite in features 0 (1)" in note for note in notes)
    assert any("far out in features 1 (1)" in note for note in notes)
    scaled = model.akeso_inputs(train)  # type: ignore[operator]
    assert bool(torch.isfinite(scaled).all())
    assert torch.allclose(scaled.mean(0), torch.zeros(3), atol=0.2)
    assert torch.allclose(scaled.std(0), torch.ones(3), atol=0.2)
    assert torch.allclose(model(train), model[1](scaled))
    assert {"akeso_inputs.centre", "0.weight"} <= set(model.state_dict())
    own = Own()
    scale_inputs(own, train)
    assert torch.equal(own(train), own.layer(scaled))
    shifted = train.clone() + 1e7
    assert not torch.allclose(model.akeso_inputs(shifted), scaled)  # type: ignore[operator]
    with pytest.raises(Refused, match="already"):
        scale_inputs(model, train)


def test_images_are_scaled_by_channel_and_pixels_of_one_kind_together() -> None:
    bytes_ = torch.randint(0, 256, (50, 3, 8, 8)).float()
    scaler, _ = fit_scaler(bytes_)
    assert scaler.centre.shape == (3,)
    assert float(scaler(bytes_).std()) == pytest.approx(1.0, rel=0.05)
    flat = torch.zeros(200, 64)
    flat[:, :40] = torch.rand(200, 40) * 255
    flat[::50, 50] = 255.0
    scaler, _ = fit_scaler(flat)
    assert float(scaler(flat).abs().max()) < 5


def test_a_code_for_missing_values_is_imputed_not_scaled_by() -> None:
    torch.manual_seed(0)
    table = torch.randn(400, 6) * torch.tensor([1.0, 10.0, 0.1, 1.0, 5.0, 2.0])
    clean = table.clone()
    holes = torch.rand(table.shape) < 0.02
    table[holes] = -999.0
    scaler, notes = fit_scaler(table)
    assert "-999 taken as missing" in notes
    whole, _ = fit_scaler(clean)
    assert torch.allclose(scaler.scale, whole.scale, rtol=0.1)
    assert float(scaler(table)[holes].abs().max()) < 0.2  # at the middle of its column
    assert torch.allclose(scaler(table)[~holes], whole(clean)[~holes], atol=0.3)
    again = type(scaler)(tuple(scaler.centre.shape), scaler.axis)
    again.load_state_dict(scaler.state_dict())
    assert torch.equal(again(table), scaler(table))
    # A single far value is an outlier, a bound that many values reach is no code, and neither are zeros of counts.
    for harmless in (clean.clamp(-1, 1), torch.poisson(torch.full((300, 8), 0.2))):
        assert fit_scaler(harmless)[0].codes.isnan().all()
    lonely = clean.clone()
    lonely[3, 2] = 1e6
    assert fit_scaler(lonely)[0].codes.isnan().all()


def test_a_code_that_most_columns_share_is_imputed_in_wide_ones_too() -> None:
    torch.manual_seed(0)
    table = torch.randn(400, 5).abs() * torch.tensor([1.0, 10.0, 0.1, 1200.0, 5.0])
    holes = torch.rand(table.shape) < 0.04
    table[holes] = -9999.0  # nothing else in the wide column comes near, but it reaches half as far itself
    scaler, _ = fit_scaler(table)
    assert float(scaler(table)[holes].abs().max()) < 0.7
    # Where the other columns reach as far, it is one of their values.
    usual = torch.cat([table[:, :2], torch.randn(400, 2) * 4000], 1)
    usual[holes[:, :4]] = -9999.0
    assert fit_scaler(usual)[0].codes[1, 2:].isnan().all()


def test_codes_that_were_standardised_with_their_columns_are_imputed_in_each() -> None:
    torch.manual_seed(0)
    table = torch.randn(400, 6)
    holes = torch.rand(400, 6) < torch.tensor([0.03, 0.0, 0.06, 0.0, 0.0, 0.1])
    table[holes] = -999.0
    table[:, 4] = (torch.rand(400) < 0.05).float()
    scaled = (table - table.mean(0)) / table.std(0)
    scaler, notes = fit_scaler(scaled)
    assert sum("taken as missing" in note for note in notes) == 3
    out = scaler(scaled)
    assert float(out[holes].abs().max()) < 0.2
    assert float(out[~holes[:, 0], 0].std()) == pytest.approx(1.0, rel=0.1)
    assert len(out[:, 4].unique()) == 2  # a rare flag stays one


def test_names_are_not_scaled() -> None:
    with pytest.raises(Refused, match="names, not quantities"):
        fit_scaler(torch.randint(0, 100, (8, 4)))


def test_predictions_come_back_in_the_units_of_the_targets() -> None:
    torch.manual_seed(0)
    targets = torch.randn(300, 1) * 1e4 + 5e5
    model = nn.Sequential(nn.Linear(2, 1))
    raw = model(torch.zeros(4, 2))
    mean, scale = standardise_targets(model, targets)
    assert torch.allclose(model(torch.zeros(4, 2)), raw * scale + mean)
    loss = InUnits(F.mse_loss, mean, scale)
    assert float(loss(targets.mean().expand(300, 1), targets)) == pytest.approx(1.0, rel=0.01)
    with pytest.raises(Refused, match="classes"):
        standardise_targets(nn.Linear(2, 2), torch.randint(0, 2, (9,)))


def test_optimizers_are_built_replaced_and_slowed() -> None:
    model = nn.Linear(3, 2)
    groups = [{"params": [model.weight], "lr": 0.1}, {"params": [model.bias], "lr": 0.2}]
    sgd = torch.optim.SGD(groups, lr=0.1, weight_decay=0.01)
    scale_rates(sgd, to=0.01)
    assert [group["lr"] for group in sgd.param_groups] == pytest.approx([0.01, 0.02])
    scale_rates(sgd, factor=0.5)
    assert sgd.param_groups[0]["lr"] == pytest.approx(0.005)
    adam = successor(sgd, "adam", 1e-3)
    assert type(adam) is torch.optim.Adam
    assert [len(group["params"]) for group in adam.param_groups] == [1, 1]
    assert adam.param_groups[0]["weight_decay"] == 0.01
    assert build_optimizer("RMSprop", model.parameters()).param_groups[0]["lr"] == 1e-3
    with pytest.raises(BadInput, match="Adamant"):
        build_optimizer("Adamant", model.parameters())


def test_gradients_are_clipped_by_norm_or_value() -> None:
    model = nn.Linear(3, 2)
    for kind, limit in (("norm", 1.0), ("value", 0.5)):
        model.zero_grad()
        (1e3 * model(torch.ones(2, 3)).sum()).backward()
        clip(model.parameters(), kind, limit)
        gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        size = gradient.norm() if kind == "norm" else gradient.abs().max()
        assert float(size) == pytest.approx(limit, rel=1e-3)
    with pytest.raises(AkesoError):
        clip(model.parameters(), "sideways", 1.0)


def test_cleaning_alone_leaves_what_is_there_as_it_is() -> None:
    torch.manual_seed(0)
    table = torch.randn(400, 6) * 40.0
    holes = torch.rand(400, 6) < 0.03
    table[holes] = torch.nan
    scaler, _ = fit_scaler(table, only_clean=True)
    again = type(scaler)(tuple(scaler.centre.shape), scaler.axis)
    again.load_state_dict(scaler.state_dict())
    out = again(table)
    assert torch.equal(out[~holes], table[~holes])
    assert float(out[holes].abs().max()) < 10  # at the middle of its column
