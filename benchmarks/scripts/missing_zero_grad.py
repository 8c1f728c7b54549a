# ruff: noqa: B007
"""Gradients that are never cleared."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = load_digits()
x = torch.tensor(data.data / 16, dtype=torch.float32)
y = torch.tensor(data.target)
loader = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(12):
    for a, b in loader:
        loss = F.cross_entropy(model(a), b)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        print("val_acc", (model(x[1400:]).argmax(1) == y[1400:]).float().mean().item())
