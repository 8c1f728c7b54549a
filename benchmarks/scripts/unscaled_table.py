"""A table whose columns differ by six orders of magnitude and have holes."""

import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(0)
torch.manual_seed(0)
table = rng.normal(size=(1200, 8)).astype(np.float32)
labels = (table[:, 0] + table[:, 1] * table[:, 2] > 0).astype(np.int64)
table *= np.array([1, 1e4, 1e-2, 50, 1e3, 1, 10, 1e4], dtype=np.float32)
table += np.array([0, 3e4, 0, 500, 0, 7, 0, 0], dtype=np.float32)
x, y = torch.from_numpy(table), torch.from_numpy(labels)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
for epoch in range(25):
    order = torch.randperm(900)
    for batch in order.split(32):
        optimizer.zero_grad()
        loss = criterion(model(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        out = model(x[900:])
        print(
            f"{epoch}: val_loss {criterion(out, y[900:]):.4f} val_acc {(out.argmax(1) == y[900:]).float().mean():.4f}"
        )
