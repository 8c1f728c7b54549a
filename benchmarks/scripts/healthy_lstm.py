# ruff: noqa: B007
"""An LSTM that counts: does a sequence have more ones than zeros?"""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
x = torch.randint(0, 2, (1200, 11))
y = (x.sum(1) > 5).long()


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(2, 8)
        self.lstm = nn.LSTM(8, 24, batch_first=True)
        self.head = nn.Linear(24, 2)

    def forward(self, tokens):
        states, _ = self.lstm(self.embed(tokens))
        return self.head(states[:, -1])


model = Counter()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(15):
    for i in range(0, 1000, 50):
        optimizer.zero_grad()
        F.cross_entropy(model(x[i : i + 50]), y[i : i + 50]).backward()
        optimizer.step()
    with torch.no_grad():
        out = model(x[1000:])
        print(
            f"val loss {F.cross_entropy(out, y[1000:]):.3f} val acc {(out.argmax(1) == y[1000:]).float().mean():.3f}"
        )
