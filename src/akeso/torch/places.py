"""Whether a model of sequences is told where a token stands, and asked for the tokens that come next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

#: Places that targets may lie on from their tokens, beyond the next one, to be found.
_FARTHEST: Final = 4
#: Share of targets that are the token so many places on, and that are the one there or the next one by accident.
_MOST, _ACCIDENT = 0.95, 0.5
#: Targets, and pairs of places with the same token, that are compared at least.
_COUNTED: Final = 32
#: Pairs that are looked at, at most, and the difference of two answers that is rounding, over their deviation.
_PAIRS: Final = 1 << 20
_ROUNDING: Final = 1e-4


def places_on(tokens: torch.Tensor, targets: Sequence[torch.Tensor], ignored: int) -> int:
    """By how many places the targets of a step lie behind the tokens, where that is more than one; else 0.

    A model that is asked for the next token as well, and for later ones beside it, knows what it does.
    """
    found = [_shift(tokens, target, ignored) for target in targets]
    return 0 if 0 in found or 1 in found else max([0, *found])


def _shift(tokens: torch.Tensor, target: torch.Tensor, ignored: int) -> int:
    """The number of places that the targets lie on, 0 for the same ones; -1 where neither fits."""
    rows, columns = tokens.shape
    if target.is_floating_point() or not rows or target.numel() % rows:
        return -1
    targets = target.reshape(rows, -1)
    length = targets.shape[1]
    if not 0 <= columns - length <= _FARTHEST:
        return -1
    shares = []
    for shift in range(_FARTHEST + 1):
        reach = min(length, columns - shift)
        if reach < 1:
            break
        wanted, there = targets[:, :reach], tokens[:, shift : shift + reach]
        counts = wanted != ignored
        count = int(counts.sum())
        shares.append(float(((wanted == there) & counts).sum()) / count if count >= _COUNTED else 0.0)
    best = max(range(len(shares)), key=shares.__getitem__, default=0)
    others = [share for shift, share in enumerate(shares) if shift != best]
    return best if shares and shares[best] >= _MOST and max(others, default=0.0) <= _ACCIDENT else -1


def answers_of(prediction: torch.Tensor, shape: torch.Size) -> torch.Tensor | None:
    """Answers arranged as samples, places, classes; None where they are not one for each token."""
    rows, columns = shape
    if prediction.dim() == 2 and len(prediction) == rows * columns:
        return prediction.reshape(rows, columns, -1)
    if prediction.dim() != 3 or len(prediction) != rows or columns not in prediction.shape[1:]:
        return None
    if prediction.shape[1] == prediction.shape[2]:
        return None
    return prediction if prediction.shape[1] == columns else prediction.transpose(1, 2)


def _alike(tokens: torch.Tensor) -> torch.Tensor:
    """Pairs of places of a sample with the same token: samples, earlier place, later place."""
    return (tokens[:, :, None] == tokens[:, None, :]).triu(1)


def _part(tokens: torch.Tensor) -> int:
    """How many samples are looked at."""
    return max(1, min(len(tokens), _PAIRS // max(1, tokens.shape[1] ** 2)))


def told_apart(tokens: torch.Tensor, targets: torch.Tensor, ignored: int) -> float:
    """In how many pairs of places with the same token, as a share, the targets are not the same; 0 for few pairs."""
    rows = _part(tokens)
    tokens, targets = tokens[:rows], targets[:rows]
    counts = targets != ignored
    pairs = _alike(tokens) & counts[:, :, None] & counts[:, None, :]
    count = int(pairs.sum())
    different = (targets[:, :, None] != targets[:, None, :]) & pairs
    return float(different.sum()) / count if count >= _COUNTED else 0.0


def blind_to_places(tokens: torch.Tensor, answers: torch.Tensor) -> bool:
    """Whether the same token gets the same answer wherever it stands in a sample."""
    rows = _part(tokens)
    tokens, answers = tokens[:rows], answers[:rows].detach().float()
    which = _alike(tokens).nonzero()[: _PAIRS // max(1, answers.shape[-1])]
    if len(which) < _COUNTED:
        return False
    one, other = answers[which[:, 0], which[:, 1]], answers[which[:, 0], which[:, 2]]
    scale = float(answers.reshape(-1, answers.shape[-1]).std(0).max())
    return scale > 0 and float((one - other).abs().max()) <= _ROUNDING * scale
