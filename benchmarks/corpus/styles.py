"""The same training written as different people write it.

Each style is an ordinary PyTorch loop over the parts of a recipe and returns its last validation metric.
They differ in what an observer from outside gets to see: loaders or slices, validation by loss, by accuracy
alone or not at all, ``zero_grad`` before or after, printing or silence.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.corpus._parts import Parts


def loader(parts: Parts, seed: int) -> float:
    """Data loaders, a printed line per epoch, validation by loss and accuracy."""
    model = parts.model()
    train_loader = DataLoader(TensorDataset(*parts.train), batch_size=parts.batch_size, shuffle=True)
    val_loader = DataLoader(TensorDataset(*parts.val), batch_size=256)
    optimizer = parts.optimizer(model.parameters())
    scheduler = parts.schedule(optimizer) if parts.schedule else None
    metric = 0.0
    for epoch in range(parts.epochs):
        model.train()
        running_loss = 0.0
        for xb, yb in train_loader:
            optimizer.zero_grad()
            loss = parts.loss(model(xb), yb)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
        if scheduler:
            scheduler.step()
        model.eval()
        val_loss, outputs = 0.0, []
        with torch.no_grad():
            for xb, yb in val_loader:
                out = model(xb)
                val_loss += parts.loss(out, yb).item()
                outputs.append(out)
        metric = parts.score(torch.cat(outputs), parts.val[1])
        if epoch % max(1, parts.epochs // 10) == 0:
            print(
                f"epoch {epoch}: loss {running_loss / len(train_loader):.4f} "
                f"val_loss {val_loss / len(val_loader):.4f} val_metric {metric:.4f}"
            )
    return metric


def slices(parts: Parts, seed: int) -> float:
    """A permutation cut by hand, whole-set validation by loss and accuracy after each epoch, silent."""
    x, y = parts.train
    net = parts.model()
    opt = parts.optimizer(net.parameters())
    sched = parts.schedule(opt) if parts.schedule else None
    best = last = float("-inf")
    for _ in range(parts.epochs):
        net.train()
        order = torch.randperm(len(x))
        for i in range(0, len(x), parts.batch_size):
            idx = order[i : i + parts.batch_size]
            loss = parts.loss(net(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
        if sched is not None:
            sched.step()
        net.eval()
        with torch.no_grad():
            pred = net(parts.val[0])
            parts.loss(pred, parts.val[1])
            last = parts.score(pred, parts.val[1])
        best = max(best, last)
    return last


def accuracy_only(parts: Parts, seed: int) -> float:
    """Validation by accuracy alone, every second epoch, under ``inference_mode``."""
    model = parts.model()
    optimizer = parts.optimizer(model.parameters())
    batches = DataLoader(TensorDataset(*parts.train), parts.batch_size, shuffle=True)
    scheduler = parts.schedule(optimizer) if parts.schedule else None
    x_val, y_val = parts.val
    acc = 0.0
    for epoch in range(1, parts.epochs + 1):
        for inputs, targets in batches:
            model.zero_grad()
            outputs = model(inputs)
            loss = parts.loss(outputs, targets)
            loss.backward()
            optimizer.step()
        if scheduler:
            scheduler.step()
        if epoch % 2 == 0 or epoch == parts.epochs:
            model.eval()
            with torch.inference_mode():
                acc = parts.score(model(x_val), y_val)
            model.train()
    print(f"accuracy: {acc:.3f}")
    return acc


def blind(parts: Parts, seed: int) -> float:
    """No validation while training; one look at the end."""
    model = parts.model()
    optimizer = parts.optimizer(model.parameters())
    scheduler = parts.schedule(optimizer) if parts.schedule else None
    data = DataLoader(TensorDataset(*parts.train), batch_size=parts.batch_size, shuffle=True)
    for epoch in range(parts.epochs):
        total = 0.0
        for x, y in data:
            optimizer.zero_grad(set_to_none=False)
            loss = parts.loss(model(x), y)
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(x)
        if scheduler:
            scheduler.step()
        if epoch % 10 == 0:
            print(epoch, total / len(parts.train[0]))
    model.eval()
    with torch.no_grad():
        return parts.score(model(parts.val[0]), parts.val[1])


class _Trainer:
    """The small trainer class that many projects have."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.model = parts.model()
        self.optimizer = parts.optimizer(self.model.parameters())
        self.scheduler = parts.schedule(self.optimizer) if parts.schedule else None
        self.history: list[dict[str, float]] = []

    def step(self, batch: list[torch.Tensor]) -> float:
        x, y = batch
        self.optimizer.zero_grad()
        loss = self.parts.loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def evaluate(self, loader: DataLoader[tuple[torch.Tensor, ...]]) -> tuple[float, float]:
        self.model.eval()
        losses, scores, count = 0.0, 0.0, 0
        for x, y in loader:
            out = self.model(x)
            losses += self.parts.loss(out, y).item() * len(x)
            scores += self.parts.score(out, y) * len(x)
            count += len(x)
        return losses / count, scores / count

    def fit(self) -> float:
        train = DataLoader(TensorDataset(*self.parts.train), self.parts.batch_size, shuffle=True)
        # One batch for validation where the metric is no mean over samples.
        size = len(self.parts.val[0]) if self.parts.metric == "r2" else 128
        val = DataLoader(TensorDataset(*self.parts.val), size)
        for _ in range(self.parts.epochs):
            self.model.train()
            train_loss = sum(self.step(batch) for batch in train) / len(train)
            val_loss, score = self.evaluate(val)
            if self.scheduler:
                self.scheduler.step()
            self.history.append({"loss": train_loss, "val_loss": val_loss, "score": score})
        return self.history[-1]["score"]


def trainer(parts: Parts, seed: int) -> float:
    """A trainer class with ``step``, ``evaluate`` and ``fit``."""
    return _Trainer(parts).fit()


def steps(parts: Parts, seed: int) -> float:
    """Counting steps instead of epochs, batches drawn with replacement, a look every twentieth of the way."""
    model = parts.model()
    opt = parts.optimizer(model.parameters())
    sched = parts.schedule(opt) if parts.schedule else None
    x, y = parts.train
    per_epoch = -(-len(x) // parts.batch_size)
    generator = torch.Generator().manual_seed(seed)
    every = max(1, parts.steps // 20)
    for step in range(parts.steps):
        ix = torch.randint(0, len(x), (parts.batch_size,), generator=generator)
        loss = parts.loss(model(x[ix]), y[ix])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if sched is not None and (step + 1) % per_epoch == 0:
            sched.step()
        if step % every == every - 1:
            model.eval()
            with torch.no_grad():
                out = model(parts.val[0])
                print(f"step {step} train {loss.item():.4f} val {parts.loss(out, parts.val[1]).item():.4f}")
            model.train()
    model.eval()
    with torch.no_grad():
        return parts.score(model(parts.val[0]), parts.val[1])


STYLES: dict[str, Callable[[Parts, int], float]] = {
    "loader": loader,
    "slices": slices,
    "accuracy": accuracy_only,
    "blind": blind,
    "trainer": trainer,
    "steps": steps,
}
