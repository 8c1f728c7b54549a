"""Student's distribution: how sure one may be with an error that was learnt from few examples."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from akeso.history import Floats

_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def quantile(probability: float, freedom: int) -> float:
    """Exact for one and two degrees of freedom, Cornish and Fisher's expansion beyond."""
    if freedom <= 1:
        return math.tan(math.pi * (probability - 0.5))
    if freedom == 2:
        a = 2 * probability - 1
        return a * math.sqrt(2 / (1 - a * a))
    z = NormalDist().inv_cdf(probability)
    n = freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


def share_below(t: Floats, freedom: int) -> Floats:
    """The probability of less: exact for one and two degrees of freedom, Wallace's approximation beyond.

    >>> share_below(np.array([-np.inf, 0.0, 2.92, np.inf]), 2).round(3).tolist()
    [0.0, 0.5, 0.95, 1.0]
    """
    t = np.clip(t, -1e150, 1e150)  # its square is finite
    if freedom <= 1:
        return np.asarray(0.5 + np.arctan(t) / math.pi)
    if freedom == 2:
        return np.asarray(0.5 + t / (2 * np.sqrt(2 + t**2)))
    n = freedom
    z = np.sign(t) * np.sqrt(n * np.log1p(t**2 / n)) * (8 * n + 1) / (8 * n + 3)
    z = np.clip(z, -30, 30)  # beyond that nothing is left to say in floats
    return np.asarray(_erfc(-z / math.sqrt(2)) / 2)
