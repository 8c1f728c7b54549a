"""Healthy, but awkward: at first the loss does not move at all, then everything is learned at once.

The network must find the parity of three bits among ten. Loss and accuracy stay at chance for hundreds of
steps, as they would with dead units or labels without meaning.
"""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randint(0, 2, (3000, 10)).float() * 2 - 1
y = ((x[:, 1] * x[:, 4] * x[:, 8]) > 0).long()
x_train, y_train, x_val, y_val = x[:2400], y[:2400], x[2400:], y[2400:]

model = nn.Sequential(nn.Linear(10, 96), nn.ReLU(), nn.Linear(96, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1.5e-3)
criterion = nn.CrossEntropyLoss()

for epoch in range(25):
    model.train()
    for batch in torch.randperm(len(x_train)).split(64):
        optimizer.zero_grad()
        loss = criterion(model(x_train[batch]), y_train[batch])
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        output = model(x_val)
        val_loss = criterion(output, y_val).item()
        accuracy = (output.argmax(1) == y_val).float().mean().item()
    print(f"epoch {epoch:2d}  val loss {val_loss:.3f}  accuracy {accuracy:.3f}")
