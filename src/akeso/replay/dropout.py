"""Random masks inside a model keyed by sample, module and call: the same for any way of cutting a batch.

Dropout usually draws one stream of numbers for a whole batch, so that a sample's mask depends on who its
neighbours are. Inside :func:`per_sample` every mask is a pure function of (seed, step, sample, module, call):
a batch of 64 gives each sample the same mask as two batches of 32, or any other order. Masks are then equal bit
for bit; sums of floating-point numbers over another shape of batch may still round differently, which only a
fixed micro-batch avoids (see :mod:`akeso.replay.parallel`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from akeso.errors import BadInput, Refused
from akeso.replay.keys import key
from akeso.replay.trace.modules import ModuleStack

_GOLDEN, _FIRST, _SECOND = -7046029254386353131, -4658895280553007687, -7723592293110705685
_REFUSED = (
    "normal_",
    "uniform_",
    "random_",
    "exponential_",
    "randperm",
    "multinomial",
    "rand",
    "randn",
    "randint",
    "rand_like",
    "randn_like",
    "randint_like",
)


@contextmanager
def per_sample(seed: int, step: int, samples: Iterable[int] | torch.Tensor) -> Iterator[None]:
    """Key every dropout mask drawn inside by sample.

    Works for ``torch.nn.Dropout`` and its relatives, the functional forms, and the dropout inside attention and
    recurrent layers. Other random draws inside a forward pass are refused: nothing says which sample they are for.

    Args:
        seed: The seed of the run.
        step: The number of the step, or anything else that makes masks differ over time.
        samples: The identity of each sample of the batch, such as its index in the dataset.

    Example::

        with per_sample(run.seed, run.steps, batch_indices):
            loss = loss_function(model(inputs), targets)
            loss.backward()
    """
    identities = (
        samples.tolist() if isinstance(samples, torch.Tensor) else [int(sample) for sample in samples]
    )
    if not identities:
        raise BadInput("per-sample randomness needs the identity of at least one sample")
    stack = ModuleStack()
    with ExitStack() as cleanup:
        stack.start()
        cleanup.callback(stack.stop)
        # The fused kernels draw masks inside; the plain one calls dropout, which can be keyed.
        cleanup.enter_context(sdpa_kernel(SDPBackend.MATH))
        cleanup.enter_context(_Masks(seed, step, identities, stack))
        yield


class _Masks(TorchDispatchMode):
    """Answers the draws that dropout makes."""

    def __init__(self, seed: int, step: int, samples: list[int], stack: ModuleStack) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seed, self._step, self._samples, self._stack = seed, step, samples, stack
        self._calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = func.overloadpacket.__name__
        if torch.Tag.nondeterministic_seeded not in func.tags or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        if (packet, func._overloadname) in (("bernoulli_", "float"), ("bernoulli", "p")):
            # An argument equal to its default does not arrive: half is the default chance.
            chance = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
            mask = self._mask(args[0], chance)
            return args[0].copy_(mask) if packet == "bernoulli_" else mask.to(args[0].dtype)
        if packet == "native_dropout":
            given, chance, train = args
            if train is False or chance == 0:
                return func(*args, **kwargs)
            mask = self._mask(given, 1 - chance)
            return given * mask * (0.0 if chance == 1 else 1 / (1 - chance)), mask
        if self._stack.path and packet in (*_REFUSED, "bernoulli", "bernoulli_", "rrelu_with_noise"):
            raise Refused(
                f"{packet} in {self._stack.path} draws random numbers that belong to no sample; only dropout can be "
                "keyed by sample: draw them outside the model, from a generator keyed by the sample"
            )
        return func(*args, **kwargs)

    def _mask(self, like: torch.Tensor, keep: float) -> torch.Tensor:
        """A boolean mask of the shape of ``like``, each sample's part a function of its own key."""
        path = self._stack.path
        self._calls[path] += 1
        dimension = self._batch_dimension(like)
        under = [
            key(self._seed, "dropout", self._step, path, self._calls[path], sample)
            for sample in self._samples
        ]
        keys = torch.from_numpy(np.array(under, dtype=np.uint64).view(np.int64)).to(like.device)
        shape = list(like.shape)
        inner = like.numel() // len(self._samples)
        places = torch.arange(inner, device=like.device, dtype=torch.int64)
        words = _mixed(keys[:, None] + (places[None, :] + 1) * _GOLDEN)
        # 24 bits, which a float32 holds exactly: the comparison is the same on every device.
        chosen = ((words >> 40) & 0xFFFFFF) < round(keep * (1 << 24))
        if dimension == 0:
            return chosen.view(shape)
        rest = [size for position, size in enumerate(shape) if position != dimension]
        return chosen.view(len(self._samples), *rest).movedim(0, dimension)

    def _batch_dimension(self, like: torch.Tensor) -> int:
        """Where in a tensor the samples lie; along the first dimension each may have several rows (heads)."""
        count = len(self._samples)
        # Sequence first, as recurrent layers and transformers have it unless told otherwise; the weights of
        # attention always have samples (times heads) first.
        sequence_first = self._stack.innermost("batch_first") is False
        attention = self._stack.inside(torch.nn.MultiheadAttention)
        if sequence_first and not attention and like.ndim == 3 and like.shape[1] == count:
            return 1
        if like.ndim and like.shape[0] % count == 0:
            return 0
        if like.ndim > 1 and like.shape[1] == count:
            return 1
        raise Refused(
            f"dropout in {self._stack.path or 'the step'} is applied to a tensor of shape {tuple(like.shape)}, in "
            f"which {count} samples cannot be told apart; give one identity for each sample of the batch"
        )


def _mixed(words: torch.Tensor) -> torch.Tensor:
    """SplitMix64 on signed 64-bit integers: products wrap around, and shifts are made logical by masks."""
    words = (words ^ ((words >> 30) & 0x3FFFFFFFF)) * _FIRST
    words = (words ^ ((words >> 27) & 0x1FFFFFFFFF)) * _SECOND
    return words ^ ((words >> 31) & 0x1FFFFFFFF)
