"""Healthy, but awkward: inputs in the millions, targets in the hundreds, losses in the thousands.

Nothing was scaled beforehand: the network normalises its inputs itself with a BatchNorm layer in front, and
the output layer starts at the mean and spread of the targets. It only looks out of scale.
"""

import torch
from sklearn.datasets import make_regression
from torch import nn

torch.manual_seed(0)
features, target = make_regression(1000, 6, noise=20.0, random_state=3)
scale = torch.tensor([1.0, 1e6, 1e-3, 50.0, 2e4, 1.0])
x = torch.tensor(features, dtype=torch.float32) * scale + 3 * scale
y = torch.tensor(target, dtype=torch.float32).unsqueeze(1) + 400


class Scaled(nn.Module):
    def __init__(self, mean, spread):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.body = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
        self.register_buffer("mean", mean)
        self.register_buffer("spread", spread)

    def forward(self, x):
        return self.body(self.norm(x)) * self.spread + self.mean


model = Scaled(y[:800].mean(), y[:800].std())
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
loss_fn = nn.MSELoss()
for epoch in range(25):
    model.train()
    for idx in torch.randperm(800).split(32):
        optimizer.zero_grad()
        loss = loss_fn(model(x[idx]), y[idx])
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        val = loss_fn(model(x[800:]), y[800:]).item()
    if epoch % 4 == 0:
        print(f"epoch {epoch}: mean squared error {val:.0f}, variance {y[800:].var():.0f}")
