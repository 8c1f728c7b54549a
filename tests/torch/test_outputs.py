"""What is read of outputs, loss arguments and initial weights so that their mistakes can be named."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import akeso
from akeso.torch.watching import Watch

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _watched(model: nn.Module, loss: Loss, target: torch.Tensor, shape: tuple[int, ...] = (32, 4)) -> Watch:
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(20):
            optimizer.zero_grad()
            loss(model(torch.randn(shape)), target).backward()
            optimizer.step()
    return watch


@pytest.mark.parametrize(("axis", "named"), [(2, False), (1, True), (0, True)])
def test_the_axis_of_a_log_softmax_is_found_out(axis: int, named: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.LogSoftmax(axis))
    watch = _watched(
        model, lambda out, y: F.nll_loss(out.reshape(-1, 5), y), torch.randint(0, 5, (192,)), (16, 12, 4)
    )
    assert ("improper-output-activation" in [one.problem for one in watch.diagnoses]) is named


@pytest.mark.parametrize(
    ("loss", "named"),
    [
        (nn.PoissonNLLLoss(), True),
        (nn.PoissonNLLLoss(log_input=False), False),
        (F.poisson_nll_loss, True),
        (lambda out, y: F.poisson_nll_loss(out, y, False), False),
    ],
)
def test_whether_a_poisson_loss_takes_logarithms_is_found_out(loss: Loss, named: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 1), nn.Softplus())
    watch = _watched(model, loss, torch.poisson(torch.full((32, 1), 6.0)))
    assert watch.history.facts["loss_args"]["log_input"] is named
    assert ("improper-loss" in [one.problem for one in watch.diagnoses]) is named


def test_weights_that_are_all_the_same_deviate_by_nothing() -> None:
    model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 1))
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.05)
    watch = _watched(model, F.mse_loss, torch.randn(32, 1))
    assert {parameter.init_std for parameter in watch.history.parameters} == {0.0}


def test_samples_one_by_one_are_no_batches_of_one_class() -> None:
    torch.manual_seed(0)
    centres, labels = torch.randn(4, 6), torch.arange(400) % 4
    samples = centres[labels] + 0.3 * torch.randn(400, 6)
    model = nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.02)
    with akeso.watch(model, optimizer, budget=0.9) as watch:
        for at in torch.randperm(400):
            optimizer.zero_grad()
            F.cross_entropy(model(samples[at : at + 1]), labels[at : at + 1]).backward()
            optimizer.step()
    for signal in ("target_top_share", "prediction_top_share"):
        shares = watch.history.series(signal).values
        assert len(shares)
        assert max(shares[-5:]) < 0.8


@pytest.mark.parametrize("squashed", [True, False])
def test_a_softmax_inside_of_compiled_code_shows_in_what_it_gives(squashed: bool) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    parts: list[nn.Module] = [nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)]
    model = torch.compile(nn.Sequential(*parts, *([nn.Softmax(1)] if squashed else [])), backend="aot_eager")
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    with akeso.watch(model, optimizer, budget=0.1) as watch:
        for _ in range(200):
            x = torch.randn(64, 8)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), x[:, :4].argmax(1)).backward()
            optimizer.step()
    assert watch.history.facts.get("output_activation") is None
    found = [one.problem for one in watch.diagnoses if one.severity != "info"]
    assert found[:1] == (["improper-output-activation"] if squashed else [])


@pytest.mark.parametrize("squashed", [True, False])
def test_a_sigmoid_inside_of_compiled_code_shows_in_what_it_gives(squashed: bool) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    parts: list[nn.Module] = [nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)]
    model = torch.compile(nn.Sequential(*parts, *([nn.Sigmoid()] if squashed else [])), backend="aot_eager")
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    with akeso.watch(model, optimizer, budget=0.1) as watch:
        for _ in range(300):
            x = torch.randn(64, 8)
            optimizer.zero_grad()
            labels = (x[:, :1] > 0).float()
            nn.functional.binary_cross_entropy_with_logits(model(x), labels).backward()
            optimizer.step()
    assert watch.history.facts.get("output_activation") is None
    found = [one.problem for one in watch.diagnoses if one.severity != "info"]
    assert found[:1] == (["improper-output-activation"] if squashed else [])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda scores: scores.log_softmax(-1), ""),
        (lambda scores: scores.log_softmax(0), "taken over another axis"),
        (lambda scores: scores, "values above 0"),
    ],
)
def test_labels_aligned_with_a_sequence_want_logarithms_of_probabilities(
    given: Callable[[torch.Tensor], torch.Tensor], said: str
) -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(30):
            labels = torch.randint(1, 6, (16, 3))
            x = torch.zeros(12, 16, 8)
            for place in range(3):
                x[1 + 4 * place : 3 + 4 * place, range(16), labels[:, place]] = 1.0
            lengths = torch.full((16,), 12), torch.full((16,), 3)
            loss = nn.functional.ctc_loss(given(model(x)), labels, *lengths)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    found = [one for one in watch.diagnoses if one.problem == "improper-output-activation"]
    assert bool(found) is bool(said)
    assert not said or said in found[0].sentence


@pytest.mark.parametrize(
    ("blank", "steps", "said"),
    [(6, 12, ""), (0, 12, "17% of the labels are the blank"), (6, 4, "more labels than steps")],
)
@pytest.mark.parametrize("padded", [True, False])
def test_labels_that_no_alignment_can_give_are_named(blank: int, steps: int, said: str, padded: bool) -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 7)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    # Six labels each, and what fills them up is the blank itself, which does not count.
    labels = torch.stack([torch.arange(6).roll(shift) for shift in range(6)]).repeat(4, 1)
    wanted = (6,) * 24
    given = torch.nn.functional.pad(labels, (0, 2), value=blank) if padded else labels.flatten()
    with akeso.watch(model, optimizer) as watch:
        for _ in range(20):
            read = model(torch.randn(steps, 24, 8)).log_softmax(-1)
            lengths = (steps,) * 24
            loss = F.ctc_loss(read, given, lengths, wanted, blank=blank, zero_infinity=True)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    found = [one for one in watch.diagnoses if one.problem == "improper-loss"]
    assert bool(found) is bool(said)
    assert not said or said in found[0].sentence


@pytest.mark.parametrize("target_first", [True, False])
def test_a_loss_may_be_given_the_target_before_the_answer(target_first: bool) -> None:
    torch.manual_seed(0)
    x = torch.rand(512, 16) * torch.linspace(0.2, 2.0, 16)
    model = nn.Sequential(nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 16))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def compared(part: torch.Tensor) -> torch.Tensor:
        answer = model(part)
        return F.mse_loss(part, answer) if target_first else F.mse_loss(answer, part)

    with akeso.watch(model, optimizer) as watch:
        for _ in range(4):
            for part in x[:384].split(32):
                optimizer.zero_grad()
                compared(part).backward()
                optimizer.step()
            with torch.no_grad():
                compared(x[384:])
    series = watch.history.series
    assert series("target_std").values[0] == pytest.approx(0.44, abs=0.05)
    assert series("baseline_loss").values[-1] == pytest.approx(float(x.var(0).mean()), rel=0.2)
    assert not [one for one in watch.diagnoses if one.severity == "error"]


def test_targets_that_were_spread_before_they_are_compared_are_named() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    reward, value = torch.randn(32), torch.randn(32, 1)
    with pytest.warns(UserWarning, match="target size"):
        watch = _watched(model, F.mse_loss, reward + value)
    found = [one for one in watch.diagnoses if one.problem == "shape-broadcast"]
    assert [one.evidence["target"] for one in found] == [[32, 32]]


@pytest.mark.parametrize(("target", "share"), [(2.0, 1.0), (0.5, 0.0)])
def test_the_error_that_no_answer_within_reach_takes_away_is_measured(target: float, share: float) -> None:
    model = nn.Sequential(nn.Linear(4, 1), nn.Tanh())
    nn.init.zeros_(model[0].weight)
    nn.init.constant_(model[0].bias, 9.0)
    watch = _watched(model, F.mse_loss, torch.tensor([[target]] * 31 + [[0.9]]))
    assert watch.history.series("target_beyond").values[0] == pytest.approx(share, abs=0.01)
