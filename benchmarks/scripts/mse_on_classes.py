# ruff: noqa: B007
"""Squared error between softmax and one-hot targets, at a rate meant for cross entropy."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = load_digits()
x = torch.tensor(data.data / 16, dtype=torch.float32)
y = torch.tensor(data.target)
targets = F.one_hot(y, 10).float()
loader = DataLoader(TensorDataset(x[:1400], targets[:1400]), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10), nn.Softmax(dim=1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.MSELoss()
for epoch in range(15):
    for a, b in loader:
        optimizer.zero_grad()
        loss = criterion(model(a), b)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        p = model(x[1400:])
        print(
            "val loss",
            criterion(p, targets[1400:]).item(),
            "val acc",
            (p.argmax(1) == y[1400:]).float().mean().item(),
        )
