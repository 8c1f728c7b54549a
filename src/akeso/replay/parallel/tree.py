"""The arithmetic of virtual ranks: who computes which, and in which order results are added.

Everything here is a pure function of numbers, so that each process knows the whole plan without asking
the others. The leaves of the tree are the virtual ranks; a node ``(low, high)`` is the sum over the
virtual ranks ``low … high - 1`` and is always the sum of its two halves. Whoever computes a node, on
however many processes, adds the same two numbers, and therefore gets the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from akeso.errors import BadInput

Node = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Merge:
    """One addition of the tree: ``node`` becomes ``left`` plus ``right``."""

    node: Node
    left: Node
    right: Node
    left_owner: int
    """Process that holds the left half, and afterwards the sum."""
    right_owner: int


def virtual_ranks(virtual: int, rank: int = 0, world: int = 1) -> range:
    """The virtual ranks that process ``rank`` of ``world`` computes: a contiguous, balanced share.

    >>> virtual_ranks(4, rank=1, world=2)
    range(2, 4)
    """
    _check(virtual, rank, world)
    return range(rank * virtual // world, (rank + 1) * virtual // world)


def virtual_slices(batch_size: int, virtual: int, rank: int = 0, world: int = 1) -> tuple[slice, ...]:
    """Where in a global batch the samples of this process's virtual ranks lie, one slice per virtual rank.

    The cut depends on ``batch_size`` and ``virtual`` alone; the number of processes only decides who gets
    which slice. Slices differ by at most one sample in length, and are empty where the batch has fewer
    samples than there are virtual ranks.

    >>> virtual_slices(10, 4)
    (slice(0, 2, None), slice(2, 5, None), slice(5, 7, None), slice(7, 10, None))
    >>> virtual_slices(10, 4, rank=1, world=2)
    (slice(5, 7, None), slice(7, 10, None))
    """
    if batch_size < 0:
        raise BadInput(
            f"a batch cannot have {batch_size} samples; give the number of samples in the global batch"
        )
    cuts = [rank_ * batch_size // virtual for rank_ in range(virtual + 1)] if virtual > 0 else []
    return tuple(slice(cuts[v], cuts[v + 1]) for v in virtual_ranks(virtual, rank, world))


def owner(leaf: int, virtual: int, world: int) -> int:
    """The process that computes virtual rank ``leaf``.

    >>> [owner(leaf, 4, 3) for leaf in range(4)]
    [0, 1, 2, 2]
    """
    return next(rank for rank in range(world) if leaf in virtual_ranks(virtual, rank, world))


def merges(virtual: int, world: int = 1) -> tuple[Merge, ...]:
    """Every addition of the tree, children before parents; the order is the same for any ``world``."""
    _check(virtual, 0, world)
    owners = [owner(leaf, virtual, world) for leaf in range(virtual)]
    plan: list[Merge] = []

    def visit(low: int, high: int) -> None:
        if high - low < 2:
            return
        middle = (low + high) // 2
        visit(low, middle)
        visit(middle, high)
        plan.append(Merge((low, high), (low, middle), (middle, high), owners[low], owners[middle]))

    visit(0, virtual)
    return tuple(plan)


def _check(virtual: int, rank: int, world: int) -> None:
    if virtual < 1:
        raise BadInput(f"the number of virtual ranks must be at least 1, not {virtual}")
    if not 0 <= rank < world:
        raise BadInput(f"process {rank} of {world} does not exist; ranks go from 0 to {world - 1}")
    if world > virtual:
        raise BadInput(
            f"{world} processes cannot share {virtual} virtual ranks: some would have nothing to do; "
            f"start at most {virtual} processes, or choose more virtual ranks from the beginning"
        )
