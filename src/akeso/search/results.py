"""What a result of Ray Tune holds: metrics by name or by path, and the hyperparameters of its trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from akeso.errors import BadInput
from akeso.search.values import as_number

#: What takes the place of a value that is not finite: far beyond any metric, near enough to be computed with.
WORST = 1e12


def plain_params(config: Any, under: str = "") -> dict[str, Any]:
    """The hyperparameters of a result, those of nested groups by their path; what is no plain value is left out."""
    found: dict[str, Any] = {}
    for name, value in config.items() if isinstance(config, Mapping) else ():
        if isinstance(value, Mapping):
            found |= plain_params(value, f"{under}{name}/")
        elif isinstance(value, bool | int | float | str):
            found[f"{under}{name}"] = value
    return found


def metric_at(metrics: Mapping[str, Any], name: str) -> Any:
    """The metric of that name; that of nested metrics is its path, as Ray's schedulers and searchers have it."""
    if name in metrics:
        return metrics[name]
    group, _, rest = name.partition("/")
    return metric_at(metrics[group], rest) if rest and isinstance(metrics.get(group), Mapping) else None


def with_metric(metrics: Mapping[str, Any], name: str, value: float) -> dict[str, Any]:
    """The metrics with another value in that place."""
    group, _, rest = name.partition("/")
    if name in metrics or not rest:
        return {**metrics, name: value}
    inner = metrics.get(group)
    return {**metrics, group: with_metric(inner if isinstance(inner, Mapping) else {}, rest, value)}


def number_or_none(value: Any) -> float | None:
    """A metric as a number; None where it is none. In the driver an error would end the search, not the trial."""
    try:
        return as_number(value)
    except BadInput:
        return None


def maximizes(mode: str) -> bool:
    """Whether a mode of Ray asks for the largest value."""
    if mode not in ("min", "max"):
        raise BadInput(f"mode is 'min' or 'max', but {mode=}")
    return mode == "max"
