"""The corpus on which akeso is measured: sick trainings with their cured twins, and healthy ones.

>>> from benchmarks.corpus import case
>>> case("circle-sigmoid-12x5").problem
'vanishing-gradient'
"""

from __future__ import annotations

from importlib import import_module

from benchmarks.corpus._case import Case, Variant, held_out, registered
from benchmarks.corpus._parts import Parts

__all__ = ["Case", "Parts", "Variant", "case", "cases", "held_out"]

_MODULES = (
    "vanishing",
    "exploding",
    "dying",
    "pace",
    "output",
    "loss",
    "input_data",
    "other_recipes",
    "other_loops",
    "other_shapes",
    "healthy_plane",
    "healthy_images",
    "healthy_values",
    "healthy_loops",
    "healthy_aims",
    "healthy_generative",
    "healthy_text",
)


def cases() -> dict[str, Case]:
    """All cases by name, sick ones first."""
    for module in _MODULES:
        import_module(f"benchmarks.corpus.{module}")
    found = registered()
    return dict(sorted(found.items(), key=lambda item: not item[1].sick))


def case(name: str) -> Case:
    """The case of that name."""
    try:
        return cases()[name]
    except KeyError:
        near = [other for other in cases() if name.split("-")[0] in other]
        raise ValueError(
            f"there is no case {name!r}; cases like it: {', '.join(near[:8]) or 'none'}"
        ) from None
