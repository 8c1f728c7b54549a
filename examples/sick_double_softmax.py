"""Sick, but awkward: it learns, and ends well short of what it could.

The model hands out probabilities, because somebody wanted them, and the criterion takes them for logits.
The loss falls, the accuracy rises; both stop where a softmax of a softmax has no slope left.
"""

import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
y = torch.tensor(digits.target)
train = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=64, shuffle=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 12, 3)
        self.fc = nn.Linear(12 * 9, 10)

    def forward(self, x):
        x = torch.max_pool2d(self.conv(x).relu(), 2)
        return self.predict(x.flatten(1))

    def predict(self, features):
        return self.fc(features).softmax(dim=-1)


model = Net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(12):
    for images, labels in train:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        out = model(x[1400:])
        val_loss = criterion(out, y[1400:])
    print(f"epoch {epoch} val loss {val_loss:.3f} accuracy {(out.argmax(1) == y[1400:]).float().mean():.3f}")
