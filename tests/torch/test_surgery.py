"""Every model remedy on every kind of model it claims."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from akeso.remedies.edit import Edit
from akeso.torch.surgery import adopt, examine_model, operate
from akeso.torch.surgery.anatomy import Treated
from akeso.torch.surgery.registration import register_held


class Functions(nn.Module):
    """Activations as functions, as methods, as a shared module, in a loop and behind a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.last = nn.Linear(8, 3)
        self.shared = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.sigmoid(self.first(x))
        for number, layer in enumerate(self.layers):
            x = layer(x)
            x = x.tanh() if number == 0 else F.relu(x, inplace=True) if number == 1 else self.shared(x)
        gate = torch.sigmoid(self.layers[0](x))
        return F.softmax(self.last(x * gate), dim=-1)


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.norm, self.last = nn.BatchNorm2d(4), nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.one(x), inplace=True)
        x = F.max_pool2d(F.relu_(self.norm(self.two(x))), 2)
        return self.last(x.flatten(1))


class Words(nn.Module):
    def __init__(self, cell: type[nn.RNNBase], **options: object) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 6, padding_idx=0)
        self.cell = cell(6, 7, batch_first=True, num_layers=2, bidirectional=True, **options)
        self.hidden, self.last = nn.Linear(14, 14), nn.Linear(14, 2)

    def forward(self, ids: Tensor) -> Tensor:
        out, _ = self.cell(self.words(ids))
        return self.last(torch.tanh(self.hidden(out[:, -1])))


class Heads(nn.Module):
    """Two heads, and an embedding tied to an output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.body = nn.Embedding(12, 6), nn.Linear(6, 6)
        self.tied, self.other = nn.Linear(6, 12, bias=False), nn.Linear(6, 1)
        self.tied.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        hidden = torch.tanh(self.body(self.words(ids).mean(1)))
        return torch.cat([self.tied(hidden), torch.sigmoid(self.other(hidden))], dim=1)


def _chain() -> nn.Module:
    parts: list[nn.Module] = [nn.Linear(4, 8), nn.Sigmoid()]
    for _ in range(3):
        parts += [nn.Sequential(nn.Linear(8, 8), nn.Sigmoid())]
    return nn.Sequential(*parts, nn.Linear(8, 3), nn.Softmax(dim=1))


def _attention() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


MODELS = {
    "sequential": lambda: (_chain(), torch.randn(6, 4)),
    "functions": lambda: (Functions(), torch.randn(6, 4)),
    "convolutional": lambda: (Images(), torch.randn(6, 1, 8, 8)),
    "lstm": lambda: (Words(nn.LSTM), torch.randint(1, 20, (6, 5))),
    "rnn": lambda: (Words(nn.RNN, nonlinearity="relu"), torch.randint(1, 20, (6, 5))),
    "attention": lambda: (_attention(), torch.randn(6, 5, 8)),
    "heads": lambda: (Heads(), torch.randint(0, 12, (6, 5))),
}
SELU = Edit("substitute-activation", "hidden", {"to": "SELU"})
BATCH = Edit("insert-normalisation", "hidden", {"kind": "batch"})
LAYER = Edit("insert-normalisation", "hidden", {"kind": "layer"})
GROUP = Edit("insert-normalisation", "hidden", {"kind": "group"})
DRAW = Edit("reinitialise", "", {"scheme": "auto"})
ALL = (SELU, BATCH, Edit("add-residual", "hidden"), DRAW)


def _built(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return MODELS[name]()


@pytest.mark.parametrize(
    "edits", [(SELU,), (BATCH,), (LAYER,), (GROUP,), (DRAW,), (BATCH, SELU), ALL], ids=str
)
@pytest.mark.parametrize("name", MODELS)
def test_a_changed_model_trains_copies_saves_and_loads(name: str, edits: tuple[Edit, ...]) -> None:
    model, x = _built(name)
    shape, kind = model(x).shape, type(model)
    operation = operate(model, edits, (x,))
    assert {edit.remedy for edit, _ in operation.refused} <= {"add-residual"}
    assert type(model) is kind
    model.train()
    output = model(x)
    output.square().mean().backward()
    assert output.shape == shape
    assert output.dtype == torch.float32
    assert all(p.grad is not None for p in operation.new_parameters)
    model.eval()
    expected = model(x)
    assert torch.equal(copy.deepcopy(model)(x), expected)
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer, weights_only=False)(x), expected)
    fresh, _ = _built(name)
    operate(fresh, edits, (x,))
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh.eval()(x), expected)
    assert torch._C._len_torch_function_stack() == 0


@pytest.mark.parametrize("name", MODELS)
def test_looking_at_a_model_changes_nothing(name: str) -> None:
    model, x = _built(name)
    model.train()
    state, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    examine_model(model, (x,))
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())


def test_sites_are_told_apart() -> None:
    model, x = _built("functions")
    sites = {site.name: (site.kind, site.role) for site in examine_model(model, (x,)).sites}
    assert sites["sigmoid"] == ("Sigmoid", "hidden")
    assert sites["shared#2"] == ("ReLU", "hidden")
    assert sites["sigmoid#2"] == ("Sigmoid", "gate")
    assert sites["softmax"] == ("Softmax", "output")


def test_gates_and_attention_keep_their_functions() -> None:
    model, x = _built("functions")
    operate(model, [SELU], (x,))
    kinds = [(site.kind, site.role) for site in examine_model(model, (x,)).sites]
    assert ("Sigmoid", "gate") in kinds
    assert [kind for kind, role in kinds if role == "hidden"] == ["SELU"] * 5


def test_the_substitute_is_what_is_computed() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.two(self.one(x).relu())

    torch.manual_seed(0)
    model, x = Net(), torch.randn(5, 3)
    expected = model.two(F.selu(model.one(x)))
    operate(model, [SELU], (x,))
    assert torch.equal(model(x), expected)


def test_an_in_place_activation_still_changes_its_argument() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = self.one(x)
            h.relu_()
            return self.two(h)

    torch.manual_seed(0)
    model, x = Net(), torch.randn(5, 3)
    expected = model.two(F.leaky_relu(model.one(x)))
    operate(model, [Edit("substitute-activation", "hidden", {"to": "LeakyReLU"})], (x,))
    output = model(x)
    output.sum().backward()
    assert torch.allclose(output, expected)


def test_a_norm_is_put_before_each_place_of_a_shared_module() -> None:
    model, x = _built("functions")
    operate(model, [BATCH], (x,))
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d)]
    assert len(norms) == 5
    assert len([module for module in model.modules() if isinstance(module, Treated)]) == 5


def test_what_is_normalised_is_left_alone() -> None:
    model, x = _built("convolutional")
    operate(model, [BATCH], (x,))
    assert sum(isinstance(module, nn.BatchNorm2d) for module in model.modules()) == 2


def test_reinitialising_draws_every_weight_anew_and_ties_stay() -> None:
    model, x = _built("heads")
    before = copy.deepcopy(model.state_dict())
    operate(model, [DRAW], (x,))
    assert not torch.equal(model.body.weight, before["body.weight"])  # type: ignore[union-attr, arg-type]
    assert model.tied.weight is model.words.weight  # type: ignore[union-attr]
    assert float(model.tied.weight.detach().std()) < 1.0  # type: ignore[union-attr, operator]


@pytest.mark.parametrize(("activation", "gain"), [(nn.ReLU, 2.0), (nn.SELU, 1.0), (nn.Tanh, 1.0)])
def test_weights_are_drawn_by_what_follows(activation: type[nn.Module], gain: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(300, 300), activation(), nn.Linear(300, 2))
    nn.init.constant_(model[0].weight, 7.0)
    operate(model, [DRAW], (torch.randn(2, 300),))
    assert float(model[0].weight.detach().var()) * 300 == pytest.approx(gain, rel=0.1)
    assert float(model[0].bias.detach().abs().max()) == 0.0


def test_recurrent_weights_become_orthogonal_and_gates_remember() -> None:
    model, x = _built("lstm")
    operate(model, [DRAW], (x,))
    block = model.cell.weight_hh_l0[:7]  # type: ignore[union-attr, index]
    assert torch.allclose(block @ block.T, torch.eye(7), atol=1e-5)
    assert torch.equal(model.cell.bias_ih_l0[7:14], torch.ones(7))  # type: ignore[union-attr, index]


def test_a_plain_recurrent_layer_takes_the_two_functions_it_knows() -> None:
    model, x = _built("rnn")
    before = model(x)
    operation = operate(model, [Edit("substitute-activation", "hidden", {"to": "Tanh"})], (x,))
    assert not operation.refused
    assert model.cell.mode == "RNN_TANH"  # type: ignore[union-attr]
    assert not torch.equal(model(x), before)


def test_residual_stacks_add_to_their_input() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*[part for _ in range(4) for part in (nn.Linear(5, 5), nn.ReLU())], nn.Linear(5, 2))
    x = torch.randn(3, 5)
    first = x + 0.25 * F.relu(model[0](x))
    operation = operate(model, [Edit("add-residual", "hidden")], (x,))
    assert len(operation.new_parameters) == 4
    assert torch.allclose(model[1](model[0](x)), first)


def test_a_shortcut_goes_around_the_norm_and_cannot_be_shut_by_the_activation() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*[part for _ in range(4) for part in (nn.Linear(5, 5), nn.ReLU())], nn.Linear(5, 2))
    x = torch.randn(3, 5)
    with torch.no_grad():
        for layer in model[:-1:2]:
            layer.bias.fill_(-100.0)  # every unit is dead
    operation = operate(model, [LAYER, Edit("add-residual", "hidden")], (x,))
    assert not operation.refused
    assert model[1][0].weight.shape == (5,)
    for position in range(1, 8, 2):
        nn.init.zeros_(model[position][0].weight)  # all that is left is the shortcut
    assert torch.allclose(model[:-1](x), x)


def test_an_output_function_is_taken_off_or_put_on() -> None:
    model, x = _built("sequential")
    logits = model[:-1](x)
    operate(model, [Edit("substitute-activation", "output", {"to": "none"})], (x,))
    assert torch.equal(model(x), logits)
    operate(model, [Edit("substitute-activation", "output", {"to": "LogSoftmax"})], (x,))
    assert torch.allclose(model(x), logits.log_softmax(-1))


@pytest.mark.parametrize(
    "cut",
    [
        lambda x: torch.clamp(x, 0.0, 1.0),
        lambda x: x.clamp(1e-7, 1 - 1e-7),
        lambda x: x.clip(min=0, max=1),
        lambda x: torch.sigmoid(x).clamp(1e-6, 1 - 1e-6),
        lambda x: torch.clip(x, -1, 1),
    ],
    ids=["clamp", "method", "clip", "after a sigmoid", "signs"],
)
def test_a_clamp_at_the_output_is_taken_off(cut: Callable[[Tensor], Tensor]) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.last = nn.Linear(3, 3), nn.Linear(3, 1)
            self.blend = nn.Parameter(torch.tensor([[0.5]]))

        def forward(self, x: Tensor) -> Tensor:
            x = x.clamp(-1, 1) * self.blend.clamp(0, 1)
            return cut(self.last(torch.relu(self.one(x))))

    torch.manual_seed(0)
    model, x = Net(), torch.randn(5, 3)
    expected = model.last(torch.relu(model.one(x.clamp(-1, 1) * 0.5)))
    assert not operate(model, [Edit("substitute-activation", "output", {"to": "none"})], (x,)).refused
    assert torch.equal(model(x), expected)
    # A clamp of the input or of a weight is arithmetic.
    assert not operate(model, [Edit("substitute-activation", "hidden", {"to": "ELU"})], (x,)).refused
    assert torch.equal(model(x), model.last(F.elu(model.one(x.clamp(-1, 1) * 0.5))))


class Powers(nn.Module):
    """Powers as activations, and as arithmetic: in a norm, in a formula, of a weight, at the output."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(5))
        self.scale = nn.Parameter(torch.full((1, 6), 0.9))

    def forward(self, x: Tensor) -> Tensor:
        one, two, three, four, last = self.layers
        x = one(x) ** 3
        x = torch.pow(two(x), 2).reshape(len(x), 6)
        x = three(x)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3) * self.scale**2
        x = four(x)
        x = 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.04 * x**3)))
        x = last(x)
        return x / (x**2).sum(-1, keepdim=True).sqrt()


def test_powers_between_layers_are_activations_and_those_in_formulas_are_not() -> None:
    torch.manual_seed(0)
    model, x = Powers(), torch.randn(7, 6)
    one, two, three, four, last = model.layers
    hidden = examine_model(model, (x,)).hidden()
    assert [(site.kind, site.name) for site in hidden if site.kind != "Tanh"] == [
        ("Cube", "pow"),
        ("Square", "pow#2"),
    ]
    for name in ("Cube", "Square"):
        edit = Edit("substitute-activation", "hidden", {"from": name, "to": "ReLU"})
        assert not operate(model, [edit], (x,)).refused
    y = three(F.relu(two(F.relu(one(x)))))
    y = four(y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-3) * model.scale**2)
    y = last(0.5 * y * (1 + torch.tanh(0.8 * (y + 0.04 * y**3))))
    assert torch.allclose(model(x), y / (y**2).sum(-1, keepdim=True).sqrt(), atol=1e-6)
    with torch.no_grad():
        assert torch.allclose(model(x), y / (y**2).sum(-1, keepdim=True).sqrt(), atol=1e-6)


def test_what_cannot_be_done_is_refused_with_the_reason() -> None:
    model = nn.Sequential(nn.Linear(4, 2))
    edits = [SELU, BATCH, Edit("add-residual"), Edit("unfreeze", "all"), Edit("set-dropout", "", {"to": 0.1}),
             Edit("set-output-bias", "", {"to": "prior"})]  # fmt: skip
    operation = operate(model, edits, (torch.zeros(3, 4),))
    assert [edit.remedy for edit, _ in operation.refused] != []
    assert len(operation.refused) == len(edits)
    assert all(len(reason) > 10 for _, reason in operation.refused)


def test_a_forward_that_raises_is_a_refusal_and_leaves_no_hook() -> None:
    model = nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 2))
    operation = operate(model, [SELU], (torch.zeros(3, 99),))
    assert "RuntimeError" in operation.refused[0][1]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert torch._C._len_torch_function_stack() == 0


def test_dropout_dtype_and_frozen_parameters() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.9), nn.Tanh(), nn.Linear(6, 2)).double()
    model[0].requires_grad_(False)
    edits = [Edit("set-dropout", "", {"to": 0.2}), Edit("unfreeze", "all"), BATCH]
    operation = operate(model, edits, (torch.zeros(3, 4, dtype=torch.float64),))
    assert not operation.refused
    assert model[1].p == 0.2
    assert all(p.requires_grad for p in model.parameters())
    assert model(torch.zeros(3, 4, dtype=torch.float64)).dtype == torch.float64


def test_new_parameters_reach_an_optimizer_that_has_state() -> None:
    model, x = _built("sequential")
    optimizer = torch.optim.Adam(model.parameters(), weight_decay=0.1)
    model(x).sum().backward()
    optimizer.step()
    operation = operate(model, [BATCH], (x,))
    assert adopt(optimizer, operation.new_parameters) == len(operation.new_parameters) == 8
    assert adopt(optimizer, operation.new_parameters) == 0
    assert optimizer.param_groups[1]["weight_decay"] == 0.0
    before = [p.detach().clone() for p in operation.new_parameters]
    optimizer.zero_grad()
    model.train()
    model(x).square().sum().backward()
    optimizer.step()
    assert any(not torch.equal(old, new) for old, new in zip(before, operation.new_parameters, strict=True))


def test_a_wrapped_model_is_reached() -> None:
    model, x = _built("sequential")
    operate(nn.DataParallel(model), [SELU], (x,))
    assert isinstance(model[1], nn.SELU)


def test_modules_in_lists_and_dicts_become_part_of_the_model() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.listed = [nn.Linear(3, 3), nn.Linear(3, 3)]
            self.named = {"up": nn.Linear(3, 4)}
            self.numbered = {0: nn.Linear(4, 2)}
            self.mixed = [nn.Linear(3, 3), "not a module"]
            self.sizes = [3, 3]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.listed:
                x = layer(x)
            return self.numbered[0](self.named["up"](x))

    model, x = Holder(), torch.randn(5, 3)
    before = model(x)
    assert not list(model.parameters())
    assert register_held(model) == ["listed", "named", "numbered"]
    assert register_held(model) == []
    assert torch.equal(model(x), before)
    assert len(list(model.parameters())) == 8
    assert model.sizes == [3, 3]


def test_embeddings_that_are_multiplied_are_drawn_small_where_that_is_asked_for() -> None:
    class Ratings(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.user, self.item, self.bias = nn.Embedding(40, 16), nn.Embedding(40, 16), nn.Embedding(40, 1)

        def forward(self, names: Tensor) -> Tensor:
            return (self.user(names) * self.item(names)).sum(-1) + self.bias(names).squeeze(-1)

    torch.manual_seed(0)
    names, model = torch.randint(0, 40, (8,)), Ratings()
    bias = model.bias.weight.detach().clone()
    operate(model, (DRAW,), (names,))
    assert float(model.user.weight.detach().std()) > 0.9  # as torch draws them, and no fault as such
    operate(model, (Edit("reinitialise", "", {"scheme": "auto", "tables": "small"}),), (names,))
    assert all(float(table.weight.detach().std()) < 0.2 for table in (model.user, model.item))
    assert torch.equal(model.bias.weight, bias)


def test_running_averages_are_let_follow_where_they_are_slower() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, momentum=1e-3), nn.BatchNorm1d(6, momentum=None))
    edit = Edit("set-averaging", "", {"to": 0.1})
    assert not operate(model, [edit], (torch.zeros(3, 4),)).refused
    assert (model[1].momentum, model[2].momentum) == (0.1, None)
    assert operate(model, [edit], (torch.zeros(3, 4),)).refused
