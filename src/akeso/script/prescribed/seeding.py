"""Seeds put in force before a script starts, and its own seeding moved where restarts shall differ."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any


def seed_everything(seed: int) -> None:
    """Seed Python and NumPy now; torch is seeded by :func:`seed_torch` when the script has imported it."""
    random.seed(seed)
    try:
        import numpy as np
    except ModuleNotFoundError:
        return
    np.random.seed(seed % 2**32)


def seed_torch(seed: int) -> None:
    """Seed torch."""
    import torch

    torch.manual_seed(seed)


def move_seeds(offset: int) -> None:
    """Let every seed the script sets be another one, always by the same distance."""
    import numpy as np
    import torch

    def moved(original: Callable[..., Any], modulus: int) -> Callable[..., Any]:
        def call(seed: Any = None, *args: Any, **kwargs: Any) -> Any:
            if isinstance(seed, int) and not isinstance(seed, bool):
                seed = (seed + 7919 * (offset + 1)) % modulus
            return original(seed, *args, **kwargs)

        return call

    torch.manual_seed = torch.random.manual_seed = moved(torch.manual_seed, 2**63)
    np.random.seed = moved(np.random.seed, 2**32)
    random.seed = moved(random.seed, 2**63)
