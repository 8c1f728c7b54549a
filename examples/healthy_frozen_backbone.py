"""Healthy, but awkward: nine tenths of the parameters never change, and the loss starts where others end.

A body trained before is frozen on purpose, and only a new last layer is trained, at a small rate, on
features that already separate the classes.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16
y = torch.tensor(digits.target)

backbone = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
old_head = nn.Linear(64, 10)

# An earlier training, by hand: what would be loaded from a file.
weights = [*backbone.parameters(), *old_head.parameters()]
for _ in range(400):
    idx = torch.randint(0, 1400, (64,))
    loss = nn.functional.cross_entropy(old_head(backbone(x[idx])), y[idx])
    for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
        weight.data -= 0.3 * gradient

# The training that is watched: is it an even digit?
for parameter in backbone.parameters():
    parameter.requires_grad = False
model = nn.Sequential(backbone, nn.Linear(64, 2))
optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=3e-3)
criterion = nn.CrossEntropyLoss()
even = (y % 2 == 0).long()
loader = DataLoader(TensorDataset(x[:1400], even[:1400]), batch_size=32, shuffle=True)

for epoch in range(10):
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        out = model(x[1400:])
        accuracy = (out.argmax(1) == even[1400:]).float().mean()
        print(f"epoch {epoch}: {criterion(out, even[1400:]).item():.3f} {accuracy:.3f}")
