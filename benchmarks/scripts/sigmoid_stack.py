"""Eight sigmoid layers on two rings."""

import torch
import torch.nn as nn
from sklearn.datasets import make_circles

torch.manual_seed(0)
x, y = make_circles(1000, noise=0.1, random_state=1)
x = torch.tensor(x, dtype=torch.float32)
y = torch.tensor(y, dtype=torch.float32).unsqueeze(1)
x_train, y_train, x_val, y_val = x[:700], y[:700], x[700:], y[700:]

layers = [nn.Linear(2, 5), nn.Sigmoid()]
for _ in range(7):
    layers += [nn.Linear(5, 5), nn.Sigmoid()]
layers += [nn.Linear(5, 1), nn.Sigmoid()]
model = nn.Sequential(*layers)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
criterion = nn.BCELoss()

for epoch in range(100):
    for i in range(0, 700, 128):
        optimizer.zero_grad()
        loss = criterion(model(x_train[i : i + 128]), y_train[i : i + 128])
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        accuracy = ((model(x_val) > 0.5) == y_val.bool()).float().mean().item()
    if epoch % 10 == 9:
        print(f"epoch {epoch + 1}: loss {loss.item():.4f} val_acc {accuracy:.4f}")
