# ruff: noqa: E501
"""Plain SGD at a rate that gets nowhere."""

import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = load_digits()
images = torch.tensor(data.images / 16, dtype=torch.float32).unsqueeze(1)
y = torch.tensor(data.target)
loader = DataLoader(TensorDataset(images[:1400], y[:1400]), batch_size=50, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(128, 32),
    nn.ReLU(),
    nn.Linear(32, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
criterion = nn.CrossEntropyLoss()
for epoch in range(15):
    model.train()
    for a, b in loader:
        optimizer.zero_grad()
        loss = criterion(model(a), b)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        out = model(images[1400:])
        print(
            f"[{epoch}] val_loss={criterion(out, y[1400:]).item():.4f} val_acc={(out.argmax(1) == y[1400:]).float().mean().item():.4f}"
        )
