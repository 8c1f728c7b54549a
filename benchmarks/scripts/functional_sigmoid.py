"""Ten hidden layers in a class of its own, activations called as functions and methods, a schedule."""

import torch
import torch.nn.functional as F
from sklearn.datasets import make_blobs
from torch import nn
from torch.optim import Adam
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, width=8, depth=9):
        super().__init__()
        self.first = nn.Linear(2, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.out = nn.Linear(width, 3)

    def forward(self, x):
        x = torch.sigmoid(self.first(x))
        for layer in self.hidden:
            x = layer(x).sigmoid()
        return self.out(x)


def evaluate(model, loader):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for x, y in loader:
            right += (model(x).argmax(1) == y).sum().item()
            total += len(y)
    return right / total


def main():
    torch.manual_seed(1)
    x, y = make_blobs(1000, centers=3, cluster_std=2, random_state=2)
    x, y = torch.tensor(x / 10, dtype=torch.float32), torch.tensor(y)
    train = DataLoader(TensorDataset(x[:700], y[:700]), batch_size=64, shuffle=True)
    val = DataLoader(TensorDataset(x[700:], y[700:]), batch_size=300)
    model = Net()
    optimizer = Adam(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
    for epoch in range(40):
        model.train()
        for a, b in train:
            optimizer.zero_grad()
            F.cross_entropy(model(a), b).backward()
            optimizer.step()
        scheduler.step()
        print(f"{epoch}: validation accuracy {evaluate(model, val):.3f}")


if __name__ == "__main__":
    main()
