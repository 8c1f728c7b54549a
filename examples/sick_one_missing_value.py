"""Sick, but awkward: a single missing value in a table of 9,000, met somewhere in the first epoch.

Until that row comes up in a batch the training is faultless; one step later every weight is NaN.
"""

import torch
from sklearn.datasets import load_diabetes
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
data, target = load_diabetes(return_X_y=True)
x = torch.tensor(data, dtype=torch.float32) / 0.05
y = torch.tensor((target - target.mean()) / target.std(), dtype=torch.float32).unsqueeze(1)
x = torch.cat([x, x**2 - 1], dim=1)
x[77, 3] = float("nan")

loader = DataLoader(TensorDataset(x[:350], y[:350]), batch_size=10, shuffle=True)
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(12):
    total = 0.0
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = ((model(xb) - yb) ** 2).mean()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: {total / len(loader):.3f}")
