"""Twelve narrow ReLU layers with biases that start below zero."""

import torch
from sklearn.datasets import make_circles
from torch import nn

torch.manual_seed(3)
x, y = make_circles(1000, noise=0.1, random_state=1)
x, y = torch.tensor(x).float(), torch.tensor(y)


def block(n):
    layer = nn.Linear(n, n)
    nn.init.constant_(layer.bias, -0.5)
    return [layer, nn.ReLU()]


model = nn.Sequential(
    nn.Linear(2, 10), nn.ReLU(), *[m for _ in range(11) for m in block(10)], nn.Linear(10, 2)
)
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
loss_fn = nn.CrossEntropyLoss()
for step in range(600):
    idx = torch.randint(0, 700, (64,))
    loss = loss_fn(model(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 49:
        with torch.no_grad():
            out = model(x[700:])
            print(
                step + 1,
                "val loss",
                loss_fn(out, y[700:]).item(),
                "val acc",
                (out.argmax(1) == y[700:]).float().mean().item(),
            )
