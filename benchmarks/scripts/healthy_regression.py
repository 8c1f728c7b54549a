"""A plain regression that goes well."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.rand(1000, 3) * 2 - 1
y = torch.sin(3 * x[:, :1]) + x[:, 1:2] ** 2 + 0.05 * torch.randn(1000, 1)
model = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
loss_fn = nn.MSELoss()
for epoch in range(40):
    perm = torch.randperm(800)
    for i in range(0, 800, 50):
        batch = perm[i : i + 50]
        optimizer.zero_grad()
        loss_fn(model(x[batch]), y[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        print(f"epoch {epoch}: val_loss {loss_fn(model(x[800:]), y[800:]).item():.5f}")
