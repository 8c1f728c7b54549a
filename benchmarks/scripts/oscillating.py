# ruff: noqa: E501
"""Momentum and a learning rate far too high."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = load_digits()
x = torch.tensor(data.data / 16, dtype=torch.float32)
y = torch.tensor(data.target)
loader = DataLoader(TensorDataset(x[:1400], y[:1400]), 32, shuffle=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 64)
        self.fc2 = nn.Linear(64, 32)
        self.fc3 = nn.Linear(32, 10)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=2.0, momentum=0.9)
for epoch in range(15):
    for a, b in loader:
        loss = F.cross_entropy(model(a), b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        out = model(x[1400:])
        print(
            f"epoch {epoch}: val loss {F.cross_entropy(out, y[1400:]):.4f}, val acc {(out.argmax(1) == y[1400:]).float().mean():.4f}"
        )
