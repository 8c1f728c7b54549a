"""Healthy, but awkward: half of the hidden units never fire.

The layer is far wider than the task needs and its biases start well below zero. Most ReLUs are silent on
most images, many on all of them, and the digits are read all the same.
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
train, val = slice(0, 1400), slice(1400, None)


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.spread = nn.Linear(64, 512)
        self.read = nn.Linear(512, 10)
        nn.init.constant_(self.spread.bias, -0.3)
        with torch.no_grad():
            self.spread.bias[:200] = -10.0

    def forward(self, x):
        return self.read(F.relu(self.spread(x)))


net = Wide()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for epoch in range(12):
    for idx in torch.randperm(1400).split(32):
        loss = F.cross_entropy(net(images[train][idx]), labels[train][idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        accuracy = (net(images[val]).argmax(1) == labels[val]).float().mean()
    print(epoch, f"{accuracy:.3f}")
