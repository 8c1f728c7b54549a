"""A softmax before cross entropy, with little time to get over it."""

import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = load_digits()
x = torch.tensor(data.data / 16, dtype=torch.float32)
y = torch.tensor(data.target)
loader = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10), nn.Softmax(dim=1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.CrossEntropyLoss()
for epoch in range(15):
    for a, b in loader:
        optimizer.zero_grad()
        loss = criterion(model(a), b)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        p = model(x[1400:])
        print(
            "epoch",
            epoch,
            "val loss",
            criterion(p, y[1400:]).item(),
            "val accuracy",
            (p.argmax(1) == y[1400:]).float().mean().item(),
        )
