"""Targets of shape (n,) against outputs of shape (n, 1)."""

import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(0)
x = torch.randn(800, 4)
y = x[:, 0] - 2 * x[:, 1] + 0.1 * torch.randn(800)
model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
criterion = nn.MSELoss()
for epoch in range(25):
    for i in range(0, 600, 32):
        optimizer.zero_grad()
        pred = model(x[i : i + 32])
        loss = criterion(pred, y[i : i + 32])
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        mse = ((model(x[600:]).squeeze(1) - y[600:]) ** 2).mean().item()
    print(f"epoch {epoch} val_mse {mse:.4f}")
