"""Sick, but awkward: the loss falls although the new head is never trained.

The optimizer was made before the last layer was exchanged for one with the right number of classes. The
body learns to work around a random last layer; nothing complains.
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(0)
digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16
y = torch.tensor(digits.target)


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 12), nn.Tanh())
        self.head = nn.Linear(12, classes)

    def forward(self, x):
        return self.head(self.body(x))


model = Classifier(classes=1000)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
model.head = nn.Linear(12, 10)
nn.init.normal_(model.head.weight, std=0.05)

for epoch in range(10):
    for idx in torch.randperm(1400).split(32):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[idx]), y[idx])
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        out = model(x[1400:])
        accuracy = (out.argmax(1) == y[1400:]).float().mean()
        print(f"epoch {epoch}: {F.cross_entropy(out, y[1400:]):.3f} {accuracy:.3f}")
