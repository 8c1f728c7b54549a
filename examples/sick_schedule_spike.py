"""Sick, but awkward: all is well for a quarter of the run, then the schedule itself kills the network.

The peak of the one-cycle schedule was set a hundred times too high. The rate climbs from a sane value; on
the way up the ReLUs die, and on the way down there is nobody left to learn.
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16
y = torch.tensor(digits.target)
loader = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=32, shuffle=True)

model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, max_lr=1.0, total_steps=10 * len(loader), div_factor=1000
)
for epoch in range(10):
    model.train()
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(xb), yb)
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        out = model(x[1400:])
        val = F.cross_entropy(out, y[1400:]).item()
    accuracy = (out.argmax(1) == y[1400:]).float().mean()
    print(f"epoch {epoch}: lr {schedule.get_last_lr()[0]:.4f} val {val:.3f} {accuracy:.3f}")
