"""Watching changes no bit, leaves nothing behind, and sees what there is to see."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer
from torch.utils.data.dataloader import _BaseDataLoaderIter

import akeso
from akeso.detectors.standing import standing
from akeso.errors import BadInput
from akeso.examination import examine
from akeso.torch.losses import output_activation
from tests.torch.loops import LOOPS, STEPS, Small


def _state_of_torch() -> list[object]:
    return [
        torch.autograd.backward, torch.no_grad.__enter__, torch.no_grad.__exit__, torch.nn.Module.train,
        torch.utils.data.DataLoader.__iter__, _BaseDataLoaderIter.__next__, torch.compile,
        torch.nn.utils.clip_grad_norm_,
        torch.amp.GradScaler.scale, dict(torch_module._global_forward_hooks),
        dict(torch_module._global_forward_pre_hooks), dict(torch_optimizer._global_optimizer_pre_hooks),
        dict(torch_optimizer._global_optimizer_post_hooks), torch.overrides._get_current_function_mode_stack(),
    ]  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_same_bits_with_and_without_and_nothing_left_behind(name: str, tmp_path) -> None:
    torch._dynamo.reset()
    before = _state_of_torch()
    torch.manual_seed(0)
    alone = LOOPS[name]()
    drawn = torch.get_rng_state()
    said: list[str] = []
    torch._dynamo.reset()
    torch.manual_seed(0)
    with akeso.watch(run=tmp_path, say=said.append) as watch:
        watched = LOOPS[name]()
    assert torch.equal(drawn, torch.get_rng_state())
    assert len(alone) == len(watched)
    assert all(torch.equal(a, b) for a, b in zip(alone, watched, strict=True))
    assert _state_of_torch() == before
    assert said == []
    assert not watch.history.events_of("probe-off")


def _watched(name: str) -> akeso.Watch:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with akeso.watch() as watch:
        LOOPS[name]()
    return watch


def test_steps_are_counted_by_optimizer_steps() -> None:
    assert _watched("plain").steps == STEPS
    assert _watched("accumulation").steps == STEPS
    assert _watched("lbfgs").steps == 8
    assert _watched("gan").steps == STEPS
    assert _watched("sparse").steps == STEPS


def test_loss_of_every_step_is_recorded() -> None:
    history = _watched("plain").history
    assert history.series("loss").steps.tolist() == list(range(STEPS))


def test_a_scaled_loss_is_recorded_unscaled() -> None:
    assert _watched("autocast_and_scaler").history.series("loss").values.max() < 5


def test_several_optimizers_have_losses_of_their_own() -> None:
    history = _watched("gan").history
    assert history.scopes("loss") == ["", "1"]
    assert len(history.facts["optimizers"]) == 2


@pytest.mark.parametrize(
    ("name", "task", "loss", "activation"),
    [
        ("plain", "binary", "cross_entropy", "none"),
        ("frozen_unused_tied", "language-model", "cross_entropy", "none"),
        ("recurrent", "binary", "binary_cross_entropy", "sigmoid"),
        ("compiled", "binary", "cross_entropy", None),
    ],
)
def test_task_and_loss_are_known_without_asking(
    name: str, task: str, loss: str, activation: str | None
) -> None:
    facts = _watched(name).history.facts
    assert (facts.get("task"), facts.get("loss")) == (task, loss)
    assert facts.get("output_activation") == activation


def test_a_head_that_minds_no_mode_may_stay_in_training_while_its_body_is_evaluated() -> None:
    body = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8)).requires_grad_(False)
    head = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(head.parameters(), 0.1)
    x, y = torch.randn(64, 4), torch.randint(2, (64,))
    for evaluates, said in ((True, False), (False, True)):
        body.train(not evaluates)
        with akeso.watch(optimizer=optimizer) as watch:
            for _ in range(4):
                for rows in torch.arange(64).split(16):
                    optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(head(body(x[rows])), y[rows]).backward()
                    optimizer.step()
                with torch.no_grad():
                    torch.nn.functional.cross_entropy(head(body(x + 1.0)), y)
        events = watch.history.events_of("evaluation")
        assert events
        assert any(event.data["training_mode"] for event in events) == said


def test_validation_is_seen_with_its_accuracy_and_loss() -> None:
    history = _watched("validated").history
    assert history.series("val_accuracy").steps.tolist() == [5, 11, 17, 23]
    assert len(history.series("val_loss")) == 4
    events = history.events_of("evaluation")
    assert [event.data["samples"] for event in events] == [96] * 4
    assert not any(event.data["training_mode"] for event in events)
    assert [event.step for event in history.events_of("epoch")] == [0, 6, 12, 18]


def test_activations_written_as_functions_are_sites() -> None:
    history = _watched("plain").history
    assert history.facts["activations"] == {"relu": "ReLU", "tanh": "Tanh"}
    assert {"relu", "tanh", "last"} <= set(history.scopes("act_std"))
    assert history.scopes("act_dead") == ["relu"]
    assert history.scopes("act_saturated") == ["tanh"]


def test_parameters_that_get_no_gradient_are_events_and_frozen_ones_are_not() -> None:
    events = _watched("frozen_unused_tied").history.events_of("detached")
    assert {event.scope: event.data["reason"] for event in events} == {
        "unused.weight": "no-grad",
        "unused.bias": "no-grad",
    }


def test_stale_gradients_are_an_event() -> None:
    model, x = Small(), torch.randn(32, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(12):
            torch.nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
            optimizer.step()
    assert watch.history.events_of("stale-gradient")
    assert not _watched("accumulation").history.events_of("stale-gradient")
    assert not _watched("gan").history.events_of("stale-gradient")


@pytest.mark.parametrize("cleared", [True, False])
def test_a_closure_that_clears_no_gradients_is_named(cleared: bool) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    x = torch.randn(64, 6)

    def closure() -> torch.Tensor:
        if cleared:
            optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x).squeeze(1), x.sum(1))
        loss.backward()
        return loss

    with akeso.watch(model, optimizer) as watch:
        for _ in range(12):
            optimizer.step(closure)
    assert bool(watch.history.events_of("stale-gradient")) is not cleared
    assert ("missing-zero-grad" in [one.problem for one in watch.diagnoses]) is not cleared


def test_clipping_is_seen_with_the_norm_before_it() -> None:
    history = _watched("clipping").history
    assert history.events_of("clip")[0].data == {"limit": 0.1, "kind": "norm"}
    raw, applied = history.series("grad_norm_raw").values, history.series("grad_norm").values
    assert (applied <= 0.1001).all()
    assert (raw >= applied - 1e-6).all()


def test_a_target_that_is_spread_over_the_output_is_an_event() -> None:
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    x = torch.randn(16, 3)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(4):
            optimizer.zero_grad()
            ((model(x) - x.sum(1)) ** 2).mean().backward()
            optimizer.step()
    event = watch.history.events_of("broadcast")[0]
    assert event.data == {"output": [16, 1], "target": [16], "result": [16, 16]}


def test_the_first_module_that_turned_non_finite_is_named() -> None:
    class Log(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)

        def forward(self, x: torch.Tensor, broken: bool) -> torch.Tensor:
            x = self.first(x)
            return self.second(torch.log(x * 0 - 1) if broken else x)

    model = Log()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(16, 3)
    with akeso.watch(model, optimizer) as watch:
        for step in range(12):
            optimizer.zero_grad()
            model(x, step == 10).mean().backward()
            optimizer.step()
    event = watch.history.events_of("non-finite")[0]
    assert event.step == 10
    assert event.data["what"] == "activation"
    assert event.data["operation"] == "log"
    assert event.data["module"] == "first"


def test_an_error_inside_akeso_is_said_once_and_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    model = Small()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    watch = akeso.watch(model, optimizer, say=said.append)

    def broken(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(watch._probe._batches, "read", broken)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(8, 6)).mean().backward()
        optimizer.step()
    watch.close()
    assert watch.steps == 10
    assert len(said) == 1
    assert "planted" in said[0]


def test_what_is_no_model_is_refused_with_the_reason() -> None:
    with pytest.raises(BadInput, match="got int"):
        akeso.watch(3)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="budget"):
        akeso.watch(Small(), budget=0)


def test_the_ten_statistics_are_kept_on_request() -> None:
    model = Small()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with akeso.watch(model, optimizer, statistics=True) as watch:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(8, 6)).mean().backward()
            optimizer.step()
    for statistic in ("mean", "var", "median", "q1", "q3", "min", "max", "skew", "kurtosis", "zero"):
        for kind in ("grad", "weight"):
            assert len(watch.history.series(f"{kind}_{statistic}", "first.weight")) >= 2


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        (lambda p, t: ((p - t) ** 2).mean(), "mse_loss"),
        (lambda p, t: (t - p).pow(2).mean(), "mse_loss"),
        (lambda p, t: torch.mean(torch.square(p - t)), "mse_loss"),
        (lambda p, t: (p - t).abs().mean(), "l1_loss"),
        (lambda p, t: p.exp().mean() - t.mean(), "custom"),
    ],
)
def test_losses_written_by_hand_are_recognised(loss, name: str) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    x = torch.randn(32, 3)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(6):
            optimizer.zero_grad()
            loss(model(x), x.sum(1, keepdim=True)).backward()
            optimizer.step()
    assert watch.history.facts["loss"] == name
    assert bool(watch.history.series("baseline_loss")) == (name != "custom")


def test_pairwise_differences_are_no_accident() -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    x, centres = torch.randn(16, 3), torch.randn(16, 2)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(4):
            optimizer.zero_grad()
            (model(x)[:, None] - centres[None]).pow(2).sum(-1).min(1).values.mean().backward()
            optimizer.step()
    assert not watch.history.events_of("broadcast")


def test_a_paused_watch_leaves_torch_alone_even_in_the_middle_of_a_pass() -> None:
    class Interrupted(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyboardInterrupt

    before = _state_of_torch()
    model = Interrupted(3, 1)
    watch = akeso.watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(KeyboardInterrupt):
        model(torch.randn(4, 3))
    watch.pause()
    assert _state_of_torch() == before
    watch.resume()
    assert _state_of_torch() != before
    watch.close()
    assert _state_of_torch() == before


@pytest.mark.parametrize(
    ("last", "name"),
    [
        (lambda x: torch.clamp(x, 0.0, 1.0), "clamp"),
        (lambda x: x.clip(1e-7, 1 - 1e-7).squeeze(1), "clamp"),
        (lambda x: torch.sigmoid(x).clamp(1e-7, 1 - 1e-7), "sigmoid"),
        (lambda x: x.clamp(-1, 1), "hardtanh"),
        (lambda x: x.clamp(-10, 10), "none"),
        (lambda x: x.clamp(min=0.1), "none"),
    ],
)
def test_a_clamp_before_the_loss_is_an_output_activation(last, name: str) -> None:
    assert output_activation(last(torch.nn.Linear(3, 1)(torch.randn(4, 3)))) == name


def test_powers_right_after_a_layer_are_seen_as_activations() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.last = (torch.nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.square(self.two(self.one(x) ** 3))
            return self.last(x / (1 + x**2).sqrt())

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(16, 4)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(4):
            optimizer.zero_grad()
            (model(x) - x).pow(2).mean().backward()
            optimizer.step()
    assert watch.history.facts["activations"] == {"pow": "Cube", "square": "Square"}
    assert watch.history.facts["loss"] == "mse_loss"
    assert watch.history.series("act_std", "one")
    assert watch.history.series("act_std", "pow")


def test_optimizers_that_take_turns_make_one_step_together() -> None:
    torch.manual_seed(0)
    models = [torch.nn.Linear(4, 1) for _ in range(3)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]
    with akeso.watch(models) as watch:
        for _ in range(30):
            for model, optimizer in zip(models, optimizers, strict=True):
                optimizer.zero_grad()
                model(torch.randn(8, 4)).square().mean().backward()
                optimizer.step()
    assert watch.history.steps == 30
    for scope in ("", "1", "2"):
        assert list(watch.history.series("loss", scope).steps) == list(range(30))


def test_an_optimizer_made_anew_for_the_same_parameters_takes_the_place_of_the_old_one() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    old = []
    with akeso.watch(model) as watch:
        for epoch in range(4):
            optimizer = torch.optim.Adam(model.parameters(), lr=0.1 / 2**epoch)
            old.append(weakref.ref(optimizer))
            for _ in range(10):
                optimizer.zero_grad()
                model(torch.randn(8, 4)).square().mean().backward()
                optimizer.step()
        assert [one() is not None for one in old] == [False, False, False, True]
    assert watch.history.steps == 40
    assert len(watch.history.facts["optimizers"]) == 1
    assert watch.history.scopes("lr") == ["0"]
    assert watch.history.series("lr", "0").values[-1] < 0.1
    assert not any("several optimizers" in line for line in examine(watch.history).not_checked)


def test_optimizers_of_the_same_parameters_that_take_turns_are_several() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01), torch.optim.Adam(model.parameters(), lr=0.01)]
    with akeso.watch(model) as watch:
        for step in range(40):
            optimizer = optimizers[step % 2]
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    assert len(watch.history.facts["optimizers"]) == 2
    assert any("several optimizers" in line for line in examine(watch.history).not_checked)


@pytest.mark.parametrize("passes", [1, 2])
def test_optimizers_that_step_after_one_backward_pass_have_one_loss(passes: int) -> None:
    torch.manual_seed(0)
    table, head = torch.nn.Embedding(20, 4, sparse=True), torch.nn.Linear(4, 2)
    model = torch.nn.Sequential(table, head)
    optimizers = [torch.optim.SparseAdam(table.parameters()), torch.optim.Adam(head.parameters())]
    with akeso.watch(model) as watch:
        for _ in range(40):
            for optimizer in optimizers:
                optimizer.zero_grad()
            for _ in range(passes):  # a generator and its judge may both go back before either steps
                tokens = torch.randint(0, 20, (32,))
                F.cross_entropy(model(tokens), tokens % 2).backward()
            for optimizer in optimizers:
                optimizer.step()
    assert len(watch.history.facts["optimizers"]) == 2
    assert standing(watch.history).adversarial == (passes > 1)
    told = any("several optimizers" in line for line in examine(watch.history).not_checked)
    assert told == (passes > 1)


def test_a_second_optimizer_that_is_forgotten_is_not_said_to_be_missing() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    forgotten = torch.optim.Adam(model[0].parameters())
    optimizer = torch.optim.Adam(model[2].parameters())
    with akeso.watch(model) as watch:
        for _ in range(40):
            forgotten.zero_grad()
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    said = [one.sentence for one in watch.diagnoses if one.problem == "parameters-not-trained"]
    assert ["in no optimizer that steps" in sentence for sentence in said] == [True]


def test_losses_inside_a_transform_leave_the_watch_whole() -> None:
    torch.manual_seed(0)
    models = [torch.nn.Linear(4, 2) for _ in range(3)]
    stacked, buffers = torch.func.stack_module_state(models)
    weights = {name: value.detach().requires_grad_() for name, value in stacked.items()}
    base = torch.nn.Linear(4, 2).to("meta")
    optimizer = torch.optim.Adam(weights.values(), lr=0.01)

    def loss_of(parameters: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        answer = torch.func.functional_call(base, parameters, (x,))
        return torch.nn.functional.cross_entropy(answer, y)

    with akeso.watch() as watch:
        for _ in range(20):
            x = torch.randn(16, 4)
            optimizer.zero_grad()
            losses = torch.func.vmap(loss_of, (0, None, None))(weights, x, (x[:, 0] > 0).long())
            losses.mean().backward()
            optimizer.step()
    assert buffers == {}
    assert watch.history.steps == 20
    assert len(watch.history.series("loss")) == 20
    assert not watch.history.events_of("probe-off")


def test_a_model_that_follows_another_one_is_not_said_to_stand_still() -> None:
    torch.manual_seed(0)
    online, target = (torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)) for _ in range(2))
    for model in (online, target):
        model[0].register_module("never", torch.nn.Linear(3, 3))  # this one does stand still
    optimizer = torch.optim.Adam(online.parameters(), lr=0.01)
    with akeso.watch() as watch:
        for step in range(60):
            x = torch.randn(16, 4)
            wanted = target(x).detach()
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(online(x), wanted + 1.0).backward()
            optimizer.step()
            if step % 10 == 0:
                target.load_state_dict(online.state_dict())
    names = {event.scope.rpartition(".")[0] for event in watch.history.events_of("detached")}
    assert len(names) == 1
    assert names.pop().endswith("0.never")


@pytest.mark.parametrize("follows", [True, False])
def test_a_copy_that_gets_gradients_is_said_to_stand_still_only_where_it_does(follows: bool) -> None:
    torch.manual_seed(0)
    online, target = (torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)) for _ in range(2))
    optimizer = torch.optim.Adam(online.parameters(), lr=0.01)
    with akeso.watch() as watch:
        for step in range(80):
            x = torch.randn(16, 4)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(
                online(x), 0.9 * target(x) + 1.0
            ).backward()  # nobody detached the target
            optimizer.step()
            if follows and step % 30 == 29:
                for mine, its in zip(target.parameters(), online.parameters(), strict=True):
                    mine.data.copy_(its.data)
    assert len(watch.history.events_of("detached")) == (0 if follows else 4)


@pytest.mark.parametrize("written_out", [False, True])
def test_no_tensor_of_the_script_is_held_into_the_backward_pass(written_out: bool) -> None:
    """The scores of a language model may be a tenth of the memory of a card."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 97))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    held: list[list[torch.Size]] = []

    def look(_: torch.Tensor) -> None:
        tensors = [thing for thing in gc.get_objects() if type(thing) is torch.Tensor]
        held.append([tensor.shape for tensor in tensors if tensor.numel() == 31 * 97])

    def loss() -> torch.Tensor:
        scores = model(torch.randn(31, 6))
        if written_out:
            return ((scores - torch.zeros(31, 97)) ** 2).mean()
        return torch.nn.functional.cross_entropy(scores, torch.randint(0, 97, (31,)))

    def train() -> list[list[torch.Size]]:
        held.clear()
        for _ in range(3):
            optimizer.zero_grad()
            value = loss()
            value.register_hook(look)
            value.backward()
            optimizer.step()
        return list(held)

    alone = train()
    with akeso.watch(model, optimizer) as watch:
        assert train() == alone
    assert watch.history.facts["loss"] == ("mse_loss" if written_out else "cross_entropy")


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_scripted_model_is_watched() -> None:
    model = torch.jit.script(
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.ones(3, 4)).square().mean().backward()
            optimizer.step()
    assert len(watch.history.series("loss").values) == 5


def _accelerated(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Any, Any]:
    accelerate = pytest.importorskip("accelerate")
    return accelerate.Accelerator(cpu=True).prepare(model, optimizer)


def _fabricated(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Any, Any]:
    fabric = pytest.importorskip("lightning.fabric")
    return fabric.Fabric(accelerator="cpu", devices=1).setup(model, optimizer)


@pytest.mark.parametrize("wrap", [_accelerated, _fabricated])
def test_an_optimizer_that_only_hands_on_to_another_is_heard(wrap: Any) -> None:
    model = torch.nn.Linear(4, 1)
    model, optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with akeso.watch(model, optimizer) as watch:
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.ones(3, 4)).square().mean().backward()
            optimizer.step()
    assert (watch.steps, len(watch.history.series("loss").values)) == (5, 5)


@pytest.mark.parametrize("where", ["around", "in place", "decorated"])
def test_what_is_told_not_to_be_compiled_is_watched_like_any_other(where: str) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    with akeso.watch() as watch:
        loss_of = F.mse_loss
        if where == "around":
            model = torch.compile(model, disable=True)
        elif where == "in place":
            model.compile(disable=True)
        else:
            loss_of = torch.compile(disable=True)(loss_of)
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for _ in range(10):
            x = torch.randn(32, 4)
            optimizer.zero_grad()
            loss_of(model(x), x[:, :1]).backward()
            optimizer.step()
    assert "compiled" not in watch.history.facts
    assert watch.history.facts["layers_seen"] == 2
