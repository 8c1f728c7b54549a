"""Healthy, but awkward: one sample per step, three quarters of them of one class, a very jumpy loss.

The loss of a single sample is near zero or large and nothing between; from step to step it swings by
factors of a hundred. Averaged over an epoch it falls, and the rare class is learned.
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import make_moons
from torch import nn

torch.manual_seed(0)
points, side = make_moons((900, 300), noise=0.12, random_state=0)
order = torch.randperm(1200)
x = torch.tensor(points, dtype=torch.float32)[order]
y = torch.tensor(side)[order]
x_train, y_train, x_val, y_val = x[:900], y[:900], x[900:], y[900:]

net = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 2))
sgd = torch.optim.SGD(net.parameters(), lr=0.05)
for epoch in range(4):
    running = 0.0
    for i in torch.randperm(900):
        sgd.zero_grad()
        loss = F.cross_entropy(net(x_train[i : i + 1]), y_train[i : i + 1])
        loss.backward()
        sgd.step()
        running += loss.item()
    with torch.no_grad():
        guess = net(x_val).argmax(1)
    rare = (guess[y_val == 1] == 1).float().mean()
    right = (guess == y_val).float().mean()
    print(f"epoch {epoch}: loss {running / 900:.3f}, rare class found {rare:.2f}, all {right:.3f}")
