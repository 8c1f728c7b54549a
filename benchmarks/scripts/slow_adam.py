# ruff: noqa: B007
"""A learning rate far too low, given on the command line by default."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = load_digits()
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-7)
parser.add_argument("--epochs", type=int, default=15)
args = parser.parse_args()
x = torch.tensor(data.data / 16, dtype=torch.float32)
y = torch.tensor(data.target)
loader = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
for epoch in range(args.epochs):
    for a, b in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(a), b).backward()
        optimizer.step()
    with torch.no_grad():
        print("val_acc", (model(x[1400:]).argmax(1) == y[1400:]).float().mean().item())
