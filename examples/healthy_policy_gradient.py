"""Healthy, but awkward: the loss is negative, noisy, and says nothing about success.

REINFORCE on a bandit with four arms. The "loss" is a device for getting the right gradient; the reward
rises while it wanders.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 4))
optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
baseline = 0.25

for step in range(600):
    best = torch.randint(0, 4, (32,))
    state = F.one_hot(best, 4).float() + 0.3 * torch.randn(32, 4)
    choice = Categorical(logits=policy(state))
    action = choice.sample()
    reward = (torch.rand(32) < torch.where(action == best, 0.9, 0.15)).float()
    loss = -(choice.log_prob(action) * (reward - baseline)).mean() - 0.01 * choice.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    baseline += 0.05 * (reward.mean().item() - baseline)
    if step % 100 == 0:
        print(f"step {step:4d}  loss {loss.item():+.3f}  average reward {baseline:.3f}")
