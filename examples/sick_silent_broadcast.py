"""Sick, but awkward: the loss falls at first and nothing raises, for the shapes fit by broadcasting.

Predictions are (32, 1), targets (32,): their difference is (32, 32), every prediction is compared with
every target, and the best answer is the mean for all.
"""

import torch
from sklearn.datasets import make_friedman1
from torch import nn

torch.manual_seed(0)
features, target = make_friedman1(1000, noise=0.5, random_state=0)
x = torch.tensor(features, dtype=torch.float32) * 2 - 1
y = torch.tensor((target - target.mean()) / target.std(), dtype=torch.float32)

net = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(20):
    for idx in torch.randperm(800).split(32):
        prediction = net(x[idx])
        loss = torch.mean((prediction - y[idx]) ** 2)
        opt.zero_grad()
        loss.backward()
        opt.step()
    if epoch % 4 == 0:
        with torch.no_grad():
            error = ((net(x[800:]).squeeze(1) - y[800:]) ** 2).mean()
        print(f"epoch {epoch}: error {error:.3f}")
