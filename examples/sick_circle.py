"""Two rings of points, told apart by a deep network that does not learn: the demonstration of akeso.

    akeso run examples/sick_circle.py

Nothing here knows of akeso. The network has ten hidden layers of sigmoid units, so that next to nothing of the
gradient arrives at the first ones.
"""

import torch
from torch import nn

torch.manual_seed(0)
angle = 2 * torch.pi * torch.rand(2000)
label = torch.arange(2000) % 2
radius = 1.0 - 0.5 * label + 0.1 * torch.randn(2000)
points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
train, test = slice(0, 1600), slice(1600, 2000)

layers: list[nn.Module] = [nn.Linear(2, 16), nn.Sigmoid()]
for _ in range(9):
    layers += [nn.Linear(16, 16), nn.Sigmoid()]
model = nn.Sequential(*layers, nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loss_of = nn.CrossEntropyLoss()

for epoch in range(20):
    model.train()
    for batch in torch.randperm(1600).split(32):
        loss = loss_of(model(points[train][batch]), label[train][batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        output = model(points[test])
        accuracy = (output.argmax(1) == label[test]).float().mean()
        print(f"epoch {epoch + 1:2}  loss {loss_of(output, label[test]):.4f}  accuracy {accuracy:.3f}")
