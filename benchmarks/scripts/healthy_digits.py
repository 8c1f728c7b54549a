# ruff: noqa: B007
"""Nothing is wrong here."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = load_digits()
x = torch.tensor(data.data / 16, dtype=torch.float32)
y = torch.tensor(data.target)
order = torch.randperm(len(x))
x, y = x[order], y[order]
loader = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(12):
    for a, b in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(a), b).backward()
        optimizer.step()
    with torch.no_grad():
        out = model(x[1400:])
        print(
            f"val loss {F.cross_entropy(out, y[1400:]):.3f} val acc {(out.argmax(1) == y[1400:]).float().mean():.3f}"
        )
