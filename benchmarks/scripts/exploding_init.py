"""Six wide layers whose weights are drawn far too large."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = load_digits()
x = torch.tensor(data.data / 16, dtype=torch.float32)
y = torch.tensor(data.target)
train = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=64, shuffle=True)
model = nn.Sequential(
    nn.Linear(64, 64),
    nn.ReLU(),
    nn.Linear(64, 64),
    nn.ReLU(),
    nn.Linear(64, 64),
    nn.ReLU(),
    nn.Linear(64, 64),
    nn.ReLU(),
    nn.Linear(64, 64),
    nn.ReLU(),
    nn.Linear(64, 10),
)
for p in model.parameters():
    if p.dim() > 1:
        nn.init.normal_(p, std=1.0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(20):
    for a, b in train:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(a), b)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        accuracy = (model(x[1400:]).argmax(1) == y[1400:]).float().mean().item()
    print(f"epoch {epoch} val_acc={accuracy:.3f}")
