"""The findings of a run as one JSON document: what every other form of report is made from."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from akeso.detectors.stages import last_stage
from akeso.detectors.standing import validation_scale
from akeso.history import History, Series

if TYPE_CHECKING:
    from akeso.examination import Examination

SCHEMA: Final = 1

#: How close a loss must come to the share of its batch to be that share.
_EXACTLY: Final = 0.01
#: How many of the last training readings a metric is the mean of, at most: single batches are noisy.
_LAST: Final = 50
#: Share of the run after which a training reading counts as one of its end.
_RECENT: Final = 0.75
#: Samples without which there is no accuracy to speak of, and with which there is one.
_SAMPLES: Final = (20, 100)
#: Where a metric is taken from, in order: signals, then what the script printed.
_METRICS: Final = {
    "train_loss": ("loss", "train_loss"),
    "train_accuracy": ("accuracy", "train_accuracy"),
    "val_loss": ("val_loss", "val_loss", "test_loss"),
    "val_accuracy": ("val_accuracy", "val_accuracy", "test_accuracy"),
    "metric": ("metric",),
}


def run_document(history: History, examination: Examination, overhead: float, **more: Any) -> dict[str, Any]:
    """The document of a run; ``more`` is added to it (the run folder, an error).

    >>> from akeso.examination import Examination
    >>> document = run_document(History(), Examination((), ("no optimizer step was seen",)), 0.0)
    >>> document["status"], document["diagnoses"], document["steps"]
    ('healthy', [], 0)
    """
    if "watch_seconds" in history.facts:
        more = {"overhead_seconds": history.facts["watch_seconds"], **more}
    document = {
        "schema": SCHEMA,
        "status": examination.status,
        "diagnoses": [diagnosis.to_dict() for diagnosis in examination.diagnoses],
        "task": str(history.facts.get("task", "unknown")),
        "steps": history.steps,
        "metrics": metrics(history),
        "overhead": round(overhead, 5),
        "not_checked": list(examination.not_checked),
        **more,
    }
    plain: dict[str, Any] = _plain(document)
    return plain


def metrics(history: History) -> dict[str, float | None]:
    """The figures a run, or its last stage, ended with; ``None`` where the last value is not a finite number."""
    history, _ = last_stage(history)
    found: dict[str, float | None] = {}
    for name, (signal, *printed) in _METRICS.items():
        value = _last(history, signal)
        if value is None:
            value = next((v for label in printed if (v := _last_printed(history, label)) is not None), None)
        if value is not None:
            found[name] = value if math.isfinite(value) else None
    return found


def _last(history: History, signal: str) -> float | None:
    series = history.series(signal)
    if not series:
        return None
    if signal not in ("loss", "accuracy"):
        return float(series.values[-1])
    if series.steps[-1] + 1 < _RECENT * history.steps:
        return None  # sampled long ago: no figure that the run ended with
    count = max(1, min(_LAST, len(series) // 10))
    if signal == "accuracy":
        count = _enough(history, series, count)
        if not count:
            return None
    scale = _scale(history) if signal == "loss" else 1.0
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.mean(series.values[-count:]) / scale)


def _scale(history: History) -> float:
    """What the loss that was trained on carries beyond the one that scripts print, that of validation or of one batch.

    Training may add up what validation averages, or divide the loss by the batches that it gathers for a step.
    """
    if history.series("val_loss"):
        return validation_scale(history)
    batches, part = history.facts.get("micro_batches"), history.series("loss_over_call").finite().values
    if not isinstance(batches, int) or batches < 2 or not len(part):
        return 1.0
    typical = float(np.median(part))
    return typical if abs(typical * batches - 1) < _EXACTLY else 1.0


def _enough(history: History, series: Series, count: int) -> int:
    """How many readings of the accuracy make a figure; 0 where those of the end hold too few samples for one."""
    shape = history.facts.get("target_shape")
    each = math.prod(shape) if isinstance(shape, Sequence) else math.inf
    recent = int(np.sum(series.steps + 1 >= _RECENT * history.steps))
    if count * each < _SAMPLES[1]:
        count = max(count, min(recent, _LAST))
    return count if count * each >= _SAMPLES[0] else 0


def _last_printed(history: History, label: str) -> float | None:
    printed = history.facts.get("printed_metrics")
    values = printed.get(label) if isinstance(printed, Mapping) else None
    try:
        return float(values[-1][1]) if values else None
    except (TypeError, ValueError, IndexError):
        return None


def to_json(document: Mapping[str, Any]) -> str:
    """The document as text that any JSON parser accepts."""
    return json.dumps(_plain(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """Plain JSON values; a float that JSON does not know becomes its name."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value)
