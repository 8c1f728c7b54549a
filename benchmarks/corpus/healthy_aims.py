"""Healthy trainings with unusual aims: distillation, metric learning, rewards, likelihoods, early stops."""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.corpus import models as m
from benchmarks.corpus import sets
from benchmarks.corpus._case import healthy_loop
from benchmarks.corpus._parts import accuracy
from benchmarks.corpus.healthy_loops import Backbone, pretrained


def _batches(x: Tensor, y: Tensor, size: int) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(x, y), batch_size=size, shuffle=True)


@healthy_loop("well-mnist-distillation", dataset="mnist", expect=0.75)
def _(seed: int) -> float:
    (x, y), (xv, yv) = sets.mnist(flat=True)
    teacher = m.ThreeLayer(784, 64, 10)
    teacher.load_state_dict(pretrained(x, y))
    teacher.eval()
    student = m.mlp([784, 32, 10])
    optimizer = torch.optim.Adam(student.parameters(), lr=2e-3)
    acc = 0.0
    for _ in range(8):
        for xb, _yb in _batches(x, y, 64):
            with torch.no_grad():
                soft = F.softmax(teacher(xb) / 2, dim=1)
            loss = F.kl_div(F.log_softmax(student(xb) / 2, dim=1), soft, reduction="batchmean") * 4
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            acc = accuracy(student(xv), yv)
    return acc


@healthy_loop("well-mnist-siamese", dataset="mnist", expect=0.62)
def _(seed: int) -> float:
    # Pairs of digits, the same or not, told apart by distance with a contrastive loss written by hand.
    (x, y), (xv, yv) = sets.mnist(flat=True)
    tower = m.mlp([784, 64, 16])
    opt = torch.optim.Adam(tower.parameters(), lr=1e-3)

    def pairs(labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
        a = torch.randint(0, len(labels), (count,))
        b = torch.randint(0, len(labels), (count,))
        for i in range(0, count, 2):
            same = torch.nonzero(labels == labels[a[i]]).flatten()
            b[i] = same[torch.randint(0, len(same), (1,))]
        return a, b

    def distance(images: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return (tower(images[a]) - tower(images[b])).pow(2).sum(1).add(1e-6).sqrt()

    for _ in range(300):
        a, b = pairs(y, 32)
        d, same = distance(x, a, b), (y[a] == y[b]).float()
        loss = (same * d**2 + (1 - same) * F.relu(2 - d) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        a, b = pairs(yv, 400)
        return float(((distance(xv, a, b) < 1.0) == (yv[a] == yv[b])).float().mean())


@healthy_loop("well-mnist-triplets", dataset="mnist", expect=0.7)
def _(seed: int) -> float:
    (x, y), (xv, yv) = sets.mnist(flat=True)
    net = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 16))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    criterion = nn.TripletMarginLoss(margin=1.0)
    groups = [torch.nonzero(y == c).flatten() for c in range(10)]
    for _ in range(300):
        c = torch.randint(0, 10, (32,))
        other = (c + torch.randint(1, 10, (32,))) % 10
        pick = lambda ids: torch.stack([groups[i][torch.randint(0, len(groups[i]), ())] for i in ids])  # noqa: E731
        loss = criterion(net(x[pick(c)]), net(x[pick(c)]), net(x[pick(other)]))
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        centres = torch.stack([net(x[g]).mean(0) for g in groups])
        return float((torch.cdist(net(xv), centres).argmin(1) == yv).float().mean())


@healthy_loop("well-contrastive-views", dataset="mnist", expect=0.5)
def _(seed: int) -> float:
    # Two noisy views of an image must find each other in the batch; the labels are the row numbers.
    (x, _), (xv, _) = sets.mnist(flat=True)
    net = nn.Sequential(nn.Linear(784, 96), nn.ReLU(), nn.Linear(96, 24))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)

    def similarity(images: Tensor) -> Tensor:
        one = F.normalize(net(images * (torch.rand_like(images) > 0.5)), dim=1)
        two = F.normalize(net(images * (torch.rand_like(images) > 0.5)), dim=1)
        return one @ two.T / 0.1

    for _ in range(8):
        for idx in torch.randperm(len(x)).split(64):
            logits = similarity(x[idx])
            loss = F.cross_entropy(logits, torch.arange(len(idx)))
            opt.zero_grad()
            loss.backward()
            opt.step()
    with torch.no_grad():
        return accuracy(similarity(xv[:64]), torch.arange(64))


@healthy_loop("well-bandit-reinforce", dataset="generated", metric="reward", expect=0.75)
def _(seed: int) -> float:
    # A policy over four arms, the best one known from the context; the loss is no measure of success.
    policy = m.mlp([4, 24, 4], nn.Tanh)
    opt = torch.optim.Adam(policy.parameters(), lr=0.01)
    baseline, rewards = 0.25, []
    for _ in range(500):
        best = torch.randint(0, 4, (32,))
        context = F.one_hot(best, 4).float() + 0.3 * torch.randn(32, 4)
        arms = torch.distributions.Categorical(logits=policy(context))
        action = arms.sample()
        reward = (torch.rand(32) < torch.where(action == best, 0.9, 0.15)).float()
        loss = -(arms.log_prob(action) * (reward - baseline)).mean() - 0.01 * arms.entropy().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        baseline += 0.05 * (float(reward.mean()) - baseline)
        rewards.append(float(reward.mean()))
    return sum(rewards[-50:]) / 50


@healthy_loop("well-q-learning-chain", dataset="generated", metric="policy", expect=0.8)
def _(seed: int) -> float:
    # Walk right along eight places to a reward: the loss rises before it falls, as values become known.
    net = m.mlp([8, 32, 2])
    target = copy.deepcopy(net).requires_grad_(False)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    eye = torch.eye(8)
    for step in range(900):
        s, a = torch.randint(0, 8, (64,)), torch.randint(0, 2, (64,))
        nxt = (s + 2 * a - 1).clamp(0, 7)
        reward, done = (nxt == 7).float(), (nxt == 7).float()
        with torch.no_grad():
            goal = reward + 0.9 * (1 - done) * target(eye[nxt]).amax(1)
        value = net(eye[s]).gather(1, a.unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(value, goal)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            target.load_state_dict(net.state_dict())
    with torch.no_grad():
        return float((net(eye).argmax(1)[:7] == 1).float().mean())


@healthy_loop("well-mixture-density", dataset="generated", metric="nll", higher_is_better=False, expect=0.9)
def _(seed: int) -> float:
    # A Gaussian likelihood with learned spread: its loss goes below zero, and that is right.
    draw = torch.Generator().manual_seed(4)
    x = torch.rand(1300, 1, generator=draw) * 4 - 2
    y = torch.sin(2 * x) + (0.05 + 0.1 * x.abs()) * torch.randn(1300, 1, generator=draw)
    net = m.mlp([1, 48, 48, 2], nn.Tanh)
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    criterion = nn.GaussianNLLLoss()
    value = 0.0
    for _ in range(30):
        for xb, yb in _batches(x[:1000], y[:1000], 50):
            mean, spread = net(xb).chunk(2, dim=1)
            loss = criterion(mean, yb, F.softplus(spread) + 1e-4)
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            mean, spread = net(x[1000:]).chunk(2, dim=1)
            value = criterion(mean, y[1000:], F.softplus(spread) + 1e-4).item()
    return value


@healthy_loop("well-two-learning-rates", dataset="mnist", family="convolutional", expect=0.78)
def _(seed: int) -> float:
    # Discriminative rates: the body a hundredth of the head, as in fine-tuning recipes.
    (x, y), (xv, yv) = sets.mnist(1500, 400)
    model = nn.Sequential(Backbone(), nn.Linear(800, 10))
    optimizer = torch.optim.Adam(
        [{"params": model[0].parameters(), "lr": 3e-5}, {"params": model[1].parameters(), "lr": 3e-3}]
    )
    acc = 0.0
    for _ in range(7):
        for xb, yb in _batches(x, y, 64):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
        with torch.no_grad():
            out = model(xv)
            F.cross_entropy(out, yv)
            acc = accuracy(out, yv)
    return acc


@healthy_loop("well-early-stopping", dataset="circle", expect=0.75)
def _(seed: int) -> float:
    # Stops by itself when validation has not improved for a while and keeps the best weights.
    (x, y), (xv, yv) = sets.circle()
    net = m.mlp([2, 32, 32, 2])
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    best, kept, bad = math.inf, net.state_dict(), 0
    for _ in range(80):
        for idx in torch.randperm(len(x)).split(32):
            opt.zero_grad()
            F.cross_entropy(net(x[idx]), y[idx]).backward()
            opt.step()
        with torch.no_grad():
            val = F.cross_entropy(net(xv), yv).item()
        if val < best:
            best, kept, bad = val, copy.deepcopy(net.state_dict()), 0
        else:
            bad += 1
            if bad == 8:
                break
    net.load_state_dict(kept)
    with torch.no_grad():
        return accuracy(net(xv), yv)
