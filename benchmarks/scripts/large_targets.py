# ruff: noqa: B007
"""House prices in euros."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(0)
x = torch.randn(1000, 6)
y = (250_000 + 60_000 * x[:, :1] - 30_000 * x[:, 1:2] * x[:, 2:3]) + 5_000 * torch.randn(1000, 1)
train, val = random_split(TensorDataset(x, y), [800, 200])
loader, held_out = DataLoader(train, 32, shuffle=True), DataLoader(val, 200)
model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(30):
    model.train()
    for a, b in loader:
        optimizer.zero_grad()
        F.mse_loss(model(a), b).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        print("val_loss:", sum(F.mse_loss(model(a), b).item() for a, b in held_out))
