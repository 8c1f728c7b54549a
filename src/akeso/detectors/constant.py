"""Models that answer the same to everything."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors._base import Detector
from akeso.detectors.standing import Standing, standing, top_share
from akeso.diagnosis import Symptom
from akeso.history import History


@dataclass(frozen=True)
class ConstantPrediction(Detector):
    """The output does not depend on the input."""

    name: ClassVar[str] = "constant-prediction"
    min_steps: int = 25
    flat: float = 0.01
    collapsed: float = 0.995
    top_share: float = 0.8
    remaining: float = 0.95
    wait: float = 0.2
    alike: float = 0.95
    drawn: float = 0.3

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        if stand.steps < self.min_steps or stand.adversarial or stand.broken:
            return
        if stand.over < self.wait:
            return  # many a model begins with the same answer to everything
        yield from self._one_direction(history, stand)
        if not math.isfinite(stand.remaining) or not stand.suffers(self.remaining):
            return
        window = network.recent(history, 0.3, 15)
        between = network.typical(history, "output_sample_std", "", window)
        whole = math.hypot(
            network.typical(history, "output_std", "", window),
            network.typical(history, "output_mean", "", window),
        )
        target = network.typical(history, "target_std", "", window)
        scale = max(value for value in (whole, target, 1e-30) if math.isfinite(value))
        if not network.up_to_date(history, "output_sample_std"):
            return
        said = curves.mean(window.of(history.series("prediction_top_share")).values)
        top = top_share(history)
        flat = math.isfinite(between) and between < self.flat * scale
        collapsed = said >= self.collapsed and not top >= self.top_share
        if not flat and not collapsed:
            return
        yield Symptom(
            self.name,
            "error",
            0.85 if flat and collapsed else 0.7,
            self._since(history, flat),
            "",
            {
                "variation_over_samples": curves.rounded(between / scale),
                "prediction_top_share": round(said, 4) if math.isfinite(said) else None,
                **stand.evidence(),
            },
            "The model gives the same answer to everything: "
            + ("its output hardly depends on the input" if flat else "")
            + (" (" if flat and collapsed else "")
            + (f"{said:.0%} of the predictions are one class" if collapsed else "")
            + (")." if flat and collapsed else "."),
        )

    def _one_direction(self, history: History, stand: Standing) -> Iterator[Symptom]:
        """Outputs that are compared by their direction, and were drawn together whatever the sample is.

        What one side gave from the beginning, as a teacher whose answers are alike, nobody has drawn together.
        """
        first = curves.median(history.series("views_alike_most").finite().values[:3])
        late = curves.median(curves.tail(history.series("views_alike_least").finite().values, 0.3, 3))
        if stand.over < 0.5 or not late >= self.alike or not 1.0 - late <= self.drawn * (1.0 - first):
            return
        yield Symptom(
            self.name,
            "error",
            0.8,
            network.extent(history)[0],
            "",
            {"cosine_at_first": round(first, 4), "cosine_late": round(late, 4)},
            "The outputs have collapsed: those for different samples point the same way now (their cosine went from "
            f"{first:.2f} to {late:.3f}), so that any two agree, and the loss is small for that alone.",
            (
                "Let no gradient through one of the two sides (`.detach()`), with a predictor behind the other.",
                "Or push different samples apart: a contrastive loss, or one on variance and covariance.",
            ),
        )

    def _since(self, history: History, flat: bool) -> int:
        if flat:
            series = history.series("output_sample_std").finite()
            limit = 2.0 * curves.median(curves.tail(series.values, 0.3, 3))
            return curves.first_step_where(series, np.asarray(series.values <= limit, float))
        series = history.series("prediction_top_share").finite()
        return curves.first_step_where(series, np.asarray(series.values >= self.collapsed - 0.05, float))
