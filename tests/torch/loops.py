"""Small real trainings of every kind of loop; each returns its tensors, to be compared bit by bit."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

Loop = Callable[[], list[torch.Tensor]]
STEPS = 24


def _data(features: int = 6, samples: int = 96) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(samples, features)
    return x, (x.sum(1) > 0).long()


def _batches(x: torch.Tensor, y: torch.Tensor, size: int = 16, steps: int = STEPS):
    for step in range(steps):
        rows = torch.arange(step * size, (step + 1) * size) % len(x)
        yield x[rows], y[rows]


def _tensors(*modules: nn.Module) -> list[torch.Tensor]:
    return [tensor.detach().clone() for module in modules for tensor in module.state_dict().values()]


class Small(nn.Module):
    """Activations as functions and methods, dropout, batch norm."""

    def __init__(self, features: int = 6, classes: int = 2) -> None:
        super().__init__()
        self.first = nn.Linear(features, 12)
        self.norm = nn.BatchNorm1d(12)
        self.second = nn.Linear(12, 12)
        self.drop = nn.Dropout(0.2)
        self.last = nn.Linear(12, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.first(x)))
        return self.last(self.drop(self.second(x).tanh()))


def plain() -> list[torch.Tensor]:
    model = Small()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, y = _data()
    for xb, yb in _batches(x, y):
        optimizer.zero_grad()
        nn.CrossEntropyLoss(label_smoothing=0.1)(model(xb), yb).backward()
        optimizer.step()
    return _tensors(model)


def validated() -> list[torch.Tensor]:
    model = Small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = _data()
    data = torch.utils.data.TensorDataset(x, y)
    loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
    held_out, wanted = _data()
    for _ in range(4):
        model.train()
        for xb, yb in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            scores = model(held_out)
            F.cross_entropy(scores, wanted)
            (scores.argmax(1) == wanted).float().mean().item()
    return _tensors(model)


def gan() -> list[torch.Tensor]:
    generator = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(), nn.Linear(8, 2))
    critic = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(), nn.Linear(8, 1))
    make = torch.optim.Adam(generator.parameters(), lr=1e-3)
    judge = torch.optim.Adam(critic.parameters(), lr=1e-3)
    loss = nn.BCEWithLogitsLoss()
    for _ in range(STEPS):
        real, noise = torch.randn(16, 2) + 2, torch.randn(16, 4)
        fake = generator(noise)
        judge.zero_grad()
        (loss(critic(real), torch.ones(16, 1)) + loss(critic(fake.detach()), torch.zeros(16, 1))).backward()
        judge.step()
        make.zero_grad()
        loss(critic(fake), torch.ones(16, 1)).backward()
        make.step()
    return _tensors(generator, critic)


def distillation() -> list[torch.Tensor]:
    teacher, student = Small().eval(), Small()
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-2)
    x, y = _data()
    for xb, yb in _batches(x, y):
        with torch.no_grad():
            soft = teacher(xb).softmax(1)
        scores = student(xb)
        loss = F.kl_div(scores.log_softmax(1), soft, reduction="batchmean") + F.cross_entropy(scores, yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return _tensors(student)


def compiled() -> list[torch.Tensor]:
    model = Small()
    fast = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, y = _data()
    for xb, yb in _batches(x, y):
        optimizer.zero_grad()
        F.cross_entropy(fast(xb), yb).backward()
        optimizer.step()
    return _tensors(model)


def autocast_and_scaler() -> list[torch.Tensor]:
    model = Small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    x, y = _data()
    for xb, yb in _batches(x, y):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(xb), yb)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return _tensors(model)


def accumulation() -> list[torch.Tensor]:
    model = Small()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, y = _data()
    for number, (xb, yb) in enumerate(_batches(x, y, steps=4 * STEPS)):
        (F.cross_entropy(model(xb), yb) / 4).backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    return _tensors(model)


def clipping() -> list[torch.Tensor]:
    model = Small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    x, y = _data()
    for xb, yb in _batches(x, y):
        optimizer.zero_grad()
        F.cross_entropy(model(xb), yb).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.1)
        optimizer.step()
    return _tensors(model)


def frozen_unused_tied() -> list[torch.Tensor]:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(20, 8)
            self.body = nn.Linear(8, 8)
            self.unused = nn.Linear(8, 3)
            self.frozen = nn.Linear(8, 8).requires_grad_(False)
            self.head = nn.Linear(8, 20, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(F.gelu(self.body(self.frozen(self.embed(tokens)))))

    model = Tied()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    tokens = torch.randint(0, 20, (96, 9))
    for batch, _ in _batches(tokens, tokens):
        scores = model(batch[:, :-1])
        loss = F.cross_entropy(scores.reshape(-1, 20), batch[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return _tensors(model)


def sparse() -> list[torch.Tensor]:
    model = nn.Sequential(nn.EmbeddingBag(30, 8, sparse=True), nn.Linear(8, 2))
    optimizers = [
        torch.optim.SparseAdam(model[0].parameters()),
        torch.optim.SGD(model[1].parameters(), lr=0.1),
    ]
    tokens = torch.randint(0, 30, (96, 5))
    for batch, _ in _batches(tokens, tokens):
        loss = F.cross_entropy(model(batch), (batch[:, 0] > 15).long())
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    return _tensors(model)


def lbfgs() -> list[torch.Tensor]:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    x, y = _data()

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x).squeeze(1), y.float())
        loss.backward()
        return loss

    for _ in range(8):
        optimizer.step(closure)
    return _tensors(model)


def used_twice() -> list[torch.Tensor]:
    class Siamese(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))

        def forward(self, one: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.encoder(one), self.encoder(other)

    model = Siamese()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    x, y = _data()
    for xb, yb in _batches(x, y):
        one, other = model(xb, xb.flip(0))
        loss = F.cosine_embedding_loss(one, other, (yb == yb.flip(0)).float() * 2 - 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return _tensors(model)


def recurrent() -> list[torch.Tensor]:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(30, 8)
            self.lstm = nn.LSTM(8, 8, batch_first=True, num_layers=2, dropout=0.1)
            self.head = nn.Linear(8, 1)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            out, _ = self.lstm(self.embed(tokens))
            return torch.sigmoid(self.head(out[:, -1]))

    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    tokens = torch.randint(0, 30, (96, 7))
    for batch, _ in _batches(tokens, tokens):
        optimizer.zero_grad()
        F.binary_cross_entropy(model(batch), (batch[:, :1] > 15).float()).backward()
        optimizer.step()
    return _tensors(model)


def attention() -> list[torch.Tensor]:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    model = nn.Sequential(
        nn.Linear(6, 8), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=STEPS)
    x = torch.randn(96, 5, 6)
    seen = []
    for xb, yb in _batches(x, x.sum((1, 2))):
        model.train()
        optimizer.zero_grad()
        loss = ((model(xb).mean(1).squeeze(-1) - yb) ** 2).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        model.eval()
        with torch.inference_mode():
            seen.append(model(xb).clone())
    return [*_tensors(model), *seen]


def copied_and_averaged() -> list[torch.Tensor]:
    model = Small()
    average = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = _data()
    for xb, yb in _batches(x, y):
        optimizer.zero_grad()
        F.cross_entropy(model(xb), yb).backward()
        optimizer.step()
        with torch.no_grad():
            for mean, now in zip(average.parameters(), model.parameters(), strict=True):
                mean.mul_(0.9).add_(now, alpha=0.1)
    return _tensors(model, average)


def by_hand() -> list[torch.Tensor]:
    """No optimizer at all."""
    weight = torch.randn(6, 1, requires_grad=True)
    x, y = _data()
    for xb, yb in _batches(x, y):
        loss = (xb @ weight - yb[:, None].float()).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            weight -= 0.05 * weight.grad
            weight.grad.zero_()
    return [weight.detach()]


LOOPS: dict[str, Loop] = {
    loop.__name__: loop
    for loop in (
        plain, validated, gan, distillation, compiled, autocast_and_scaler, accumulation, clipping,
        frozen_unused_tied, sparse, lbfgs, used_twice, recurrent, attention, copied_and_averaged, by_hand,
    )
}  # fmt: skip
