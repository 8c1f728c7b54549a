# ruff: noqa: B007
"""Pixels from 0 to 255 as they are."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = load_digits()
x = torch.tensor(data.data * (255 / 16), dtype=torch.float32)
y = torch.tensor(data.target)
train = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=64, shuffle=True)
val = DataLoader(TensorDataset(x[1400:], y[1400:]), batch_size=397)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(15):
    for a, b in train:
        optimizer.zero_grad()
        F.cross_entropy(model(a), b).backward()
        optimizer.step()
    with torch.no_grad():
        for a, b in val:
            out = model(a)
            print(f"val loss {F.cross_entropy(out, b):.3f} val acc {(out.argmax(1) == b).float().mean():.3f}")
