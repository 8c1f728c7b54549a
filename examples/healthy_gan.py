"""Healthy, but awkward: neither of the two losses falls.

A generator and a critic pull against each other. Both losses hover where neither side wins, which on a
curve looks like a training that stands still.
"""

import math

import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))
critic = nn.Sequential(
    nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1)
)
optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
optimizer_d = torch.optim.Adam(critic.parameters(), lr=3e-3, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)


def ring(count):
    angle = torch.rand(count) * 2 * math.pi
    return torch.stack([angle.cos(), angle.sin()], dim=1) + 0.05 * torch.randn(count, 2)


for step in range(600):
    fake = generator(torch.randn(64, 4))
    loss_d = criterion(critic(ring(64)), ones) + criterion(critic(fake.detach()), zeros)
    optimizer_d.zero_grad()
    loss_d.backward()
    optimizer_d.step()

    loss_g = criterion(critic(fake), ones)
    optimizer_g.zero_grad()
    loss_g.backward()
    optimizer_g.step()
    if step % 100 == 0:
        print(f"step {step}  critic {loss_d.item():.3f}  generator {loss_g.item():.3f}")

with torch.no_grad():
    radius = generator(torch.randn(500, 4)).norm(dim=1)
print(f"radius of what is generated: {radius.mean():.2f} (should be 1)")
