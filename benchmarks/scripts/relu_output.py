# ruff: noqa: B007
"""A ReLU on the scores."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

torch.manual_seed(0)
data = load_digits()
x = torch.tensor(data.data / 16, dtype=torch.float32)
y = torch.tensor(data.target)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 32), nn.Tanh())
        self.head = nn.Linear(32, 10)
        nn.init.constant_(self.head.bias, -1.0)

    def forward(self, x):
        return torch.relu(self.head(self.body(x)))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(15):
    order = torch.randperm(1400)
    for i in range(0, 1400, 64):
        batch = order[i : i + 64]
        optimizer.zero_grad()
        F.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        print("val_acc:", (model(x[1400:]).argmax(1) == y[1400:]).float().mean().item())
