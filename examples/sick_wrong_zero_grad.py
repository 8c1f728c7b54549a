"""Sick, but awkward: zero_grad is called in every step, on another optimizer.

A first attempt with SGD was left in the file. The gradients of all steps pile up; the loss falls for a
while on their common direction and then runs away in slow waves.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(0)
digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16
y = torch.tensor(digits.target)

old = nn.Linear(64, 10)
sgd = torch.optim.SGD(old.parameters(), lr=0.1)

model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
adam = torch.optim.Adam(model.parameters(), lr=3e-3)
criterion = nn.CrossEntropyLoss()
for epoch in range(15):
    for idx in torch.randperm(1400).split(32):
        sgd.zero_grad()
        loss = criterion(model(x[idx]), y[idx])
        loss.backward()
        adam.step()
    with torch.no_grad():
        out = model(x[1400:])
        print(
            f"epoch {epoch} {criterion(out, y[1400:]):.3f} {(out.argmax(1) == y[1400:]).float().mean():.3f}"
        )
