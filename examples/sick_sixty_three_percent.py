"""Sick, but awkward: 63 % accuracy from the first epoch on looks like a model that works.

It is the share of the larger class. Ten sigmoid layers let no gradient through to the first ones, and the
network answers the same for every patient.
"""

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from torch import nn

torch.manual_seed(0)
data, benign = load_breast_cancer(return_X_y=True)
x = torch.tensor(StandardScaler().fit_transform(data), dtype=torch.float32)
y = torch.tensor(benign, dtype=torch.float32).unsqueeze(1)
order = torch.randperm(len(x))
x, y = x[order], y[order]


class DeepNet(nn.Module):
    def __init__(self, width=20, depth=10):
        super().__init__()
        self.first = nn.Linear(30, width)
        self.rest = nn.ModuleList(nn.Linear(width, width) for _ in range(depth - 1))
        self.last = nn.Linear(width, 1)

    def forward(self, x):
        x = torch.sigmoid(self.first(x))
        for layer in self.rest:
            x = torch.sigmoid(layer(x))
        return self.last(x)


net = DeepNet()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
bce = nn.BCEWithLogitsLoss()
for epoch in range(40):
    for i in range(0, 400, 20):
        loss = bce(net(x[i : i + 20]), y[i : i + 20])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 8 == 0:
        with torch.no_grad():
            right = ((net(x[400:]) > 0) == (y[400:] > 0.5)).float().mean()
        print(f"epoch {epoch}: accuracy {right:.3f}")
