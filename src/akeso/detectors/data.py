"""What the network is fed with: inputs and targets that are missing, out of scale or out of order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from akeso.detectors import curves, network, outliers, terms
from akeso.detectors._base import Detector
from akeso.detectors.labels import sorted_by_class
from akeso.detectors.standing import Standing, standing, top_share, validation_loss
from akeso.diagnosis import Symptom
from akeso.history import History, Layer

#: Share of the values that are whole numbers, from which on they may be ids.
_WHOLE: Final = 0.99


def _early_median(history: History, signal: str) -> float:
    return curves.median(history.series(signal).finite().values[:20])


def _worst(history: History, signal: str) -> tuple[float, int]:
    series = history.series(signal).finite()
    if not series:
        return 0.0, 0
    index = int(np.argmax(series.values > 0)) if (series.values > 0).any() else 0
    return float(series.values.max()), int(series.steps[index])


def takes_tokens(history: History) -> bool:
    """Whether the inputs are looked up in an embedding, so that their size means nothing."""
    if history.facts.get("input_kind") == "tokens":
        return True
    if _early_median(history, "input_whole") < _WHOLE:
        return False  # fractions are looked up nowhere: an embedding of something else stands beside them
    ordered = sorted(history.layers, key=lambda layer: layer.order)
    first = next((layer for layer in ordered if layer.parameters), None)
    return first is not None and _embeds(first)


def _embeds(layer: Layer) -> bool:
    return "embedding" in f"{layer.role} {layer.kind}".lower()


def _normalised(history: History) -> bool:
    """Whether a normalisation layer takes the scale out of the inputs before anything can suffer from it."""
    taking = (layer for layer in history.layers if layer.parameters and not _embeds(layer))
    ordered = sorted(taking, key=lambda layer: layer.order)
    return any("norm" in f"{layer.role} {layer.kind}".lower() for layer in ordered[:2])


_IMPUTE = "Find where missing values come from; drop those samples, or put the median of the feature in their place."
_LEAVE_OUT = (
    "Leave samples out whose target is missing: a loss on them is NaN, and so is every weight after it."
)


@dataclass(frozen=True)
class AbnormalData(Detector):
    """Inputs or targets that are not finite, or so badly scaled that the training suffers."""

    name: ClassVar[str] = "abnormal-data"
    min_steps: int = 15
    large: float = 10.0
    small: float = 1e-2
    spread: float = 100.0
    outlier: float = 1e3
    outlier_code: float = 100.0
    rare: float = 4.0
    alike: float = 0.01
    target_large: float = 30.0
    target_small: float = 1e-2
    overshoot: float = 3.0
    stuck: float = 0.7
    remaining: float = 0.5
    per_decade: float = 0.25
    remaining_in_chain: float = 0.15
    remaining_with_codes: float = 0.1
    most: float = 0.5
    wait: float = 0.1

    def detect(self, history: History) -> Iterator[Symptom]:
        yield from self._missing(history)
        stand = standing(history)
        if stand.steps < self.min_steps or stand.adversarial:
            return
        findings: list[outliers.Finding] = []
        if not takes_tokens(history):
            findings += [] if _normalised(history) else self._inputs(history, stand)
            findings += [] if findings else self._fed(history)
            far = outliers.in_inputs(history, self.outlier, self.outlier_code, self.rare, self.large)
            findings += [found for found in far if not findings or "input_code" in found[1]]
        chain = bool(findings) and self._chain(history, stand)
        findings += self._targets(history)
        if sorted_by_class(history):
            yield self._sorted(history, stand)
            return
        if not findings:
            return
        decades = math.log10(max(1.0, *(strength for _, _, strength in findings)))
        # A tail reaches so far now and then. What does in most batches has flattened its feature for good.
        codes = any(figures.get("batches_with_far_values", 0.0) >= self.most for _, figures, _ in findings)
        needed = self.remaining - self.per_decade * min(1.0, decades)
        needed = self.remaining_in_chain if chain or codes else needed
        if any("input_code" in figures for _, figures, _ in findings):
            needed = self.remaining_with_codes
        drowned = any("target_outlier" in figures for _, figures, _ in findings) and outliers.drown(
            history, stand, self.remaining
        )
        stopped = network.stopped(history)
        # Large targets make a large loss, which leaves no room for another one beside it.
        crowd = (
            terms.drowned(history, stand) if any("target_mean" in found for _, found, _ in findings) else None
        )
        drowned = drowned or crowd is not None
        harmed = stand.suffers(needed) or drowned or stopped
        harmed = harmed or self._harmed_in_validation(history, stand, needed)
        if not harmed or (not chain and stand.coming_down(self.wait)):
            return
        start, _ = network.extent(history)
        words = " and ".join(text for text, _, _ in findings)
        off_scale = any("input_constant" not in figures for _, figures, _ in findings)
        yield Symptom(
            self.name,
            "error" if drowned or stopped or stand.suffers(self.remaining) else "warning",
            min(0.95, 0.6 + 0.15 * decades + (0.1 if drowned or stopped or stand.suffers(0.9) else 0.0)),
            start,
            "",
            {
                **{key: value for _, figures, _ in findings for key, value in figures.items()},
                **(crowd.evidence() if crowd is not None else {}),
                **stand.evidence(),
            },
            f"The data is {'out of scale' if off_scale else 'not as it should be'}: {words}; "
            + (f"{crowd.sentence()}." if crowd is not None else "the training suffers from it."),
        )

    def _sorted(self, history: History, stand: Standing) -> Symptom:
        start, _ = network.extent(history)
        return Symptom(
            self.name,
            "error" if stand.suffers(self.remaining) else "warning",
            0.85,
            start,
            "",
            {"target_top_share": round(top_share(history), 4), **stand.evidence()},
            "The data comes sorted by class: a batch holds one or a few of them, the next ones others. Shuffle it.",
            ("Shuffle the training set (`DataLoader(…, shuffle=True)`).",),
        )

    def _chain(self, history: History, stand: Standing) -> bool:
        """Whether the scale is seen to do its damage: a wasted start, or units stuck from the first steps on."""
        if stand.first > self.overshoot * stand.baseline:
            return True
        window = network.early(history)
        return any(
            network.typical(history, signal, site, window) >= self.stuck
            for signal in ("act_saturated", "act_dead")
            for site in history.scopes(signal)[:2]
        )

    def _missing(self, history: History) -> Iterator[Symptom]:
        seen = {event.data.get("what"): event for event in history.events_of("non-finite")}
        where, figures, first = [], {}, []
        for what in ("input", "target"):
            share, step = _worst(history, f"{what}_nonfinite")
            event = seen.get(what)
            if share > 0 or event is not None:
                where.append(f"{what}s")
                if share > 0:  # else only a step that was not looked at had any
                    figures[f"{what}_nonfinite"] = float(f"{share:.3g}")
                first.append(step if share > 0 or event is None else event.step)
        if not where:
            return
        yield Symptom(
            self.name,
            "error",
            0.97,
            min(first),
            "",
            figures,
            f"The {' and the '.join(where)} contain values that are NaN or infinite.",
            (_IMPUTE, *((_LEAVE_OUT,) if "targets" in where else ())),
        )

    def _inputs(self, history: History, stand: Standing) -> Iterator[outliers.Finding]:
        mean, std = _early_median(history, "input_mean"), _early_median(history, "input_std")
        size = math.hypot(mean, std)
        if size > self.large:
            figures = {"input_mean": curves.rounded(mean), "input_std": curves.rounded(std)}
            yield f"inputs have a typical size of {size:.3g}", figures, size / self.large
        elif 0 < size < self.small:
            yield (
                f"inputs have a typical size of {size:.2g}",
                {"input_size": curves.rounded(size)},
                self.small / size,
            )
        spread = _early_median(history, "input_scale_spread")
        if spread > self.spread:
            figures = {"input_scale_spread": curves.rounded(spread)}
            yield (
                f"one feature is {spread:.2g} times as large as the typical one",
                figures,
                spread / self.spread,
            )
        between = _early_median(history, "input_sample_std")
        if 0 < between < self.alike and not size > self.large:
            yield (
                f"samples differ from each other by {between:.1%} of the size of their values",
                {"input_sample_std": curves.rounded(between)},
                self.alike / between,
            )
        constant = _early_median(history, "input_constant")
        # In rollouts many a state is met again and again; their losses are no comparison with a constant's.
        if constant >= 0.99 and math.isfinite(stand.baseline) and stand.first > 0:
            yield (
                "all samples of a batch have the same features",
                {"input_constant": round(constant, 3)},
                10.0,
            )

    def _fed(self, history: History) -> Iterator[outliers.Finding]:
        """What the model makes of its inputs itself, before any layer: a raw time or position put beside them, say."""
        for layer in history.scopes("fed_size"):
            size, spread = (
                curves.median(history.series(signal, layer).finite().values[:20])
                for signal in ("fed_size", "fed_spread")
            )
            figures = {"fed_size": curves.rounded(size), "fed_spread": curves.rounded(spread)}
            called = network.called(layer)
            if size > self.large:
                yield (
                    f"{called} is fed with values of a typical size of {size:.3g}",
                    figures,
                    size / self.large,
                )
                return
            if spread > self.spread:
                text = (
                    f"one feature that {called} is fed with is {spread:.2g} times as large as the typical one"
                )
                yield text, figures, spread / self.spread
                return

    def _harmed_in_validation(self, history: History, stand: Standing, needed: float) -> bool:
        """Whether validation never got far, in a run that does not simply learn its samples by heart."""
        best = validation_loss(history).values
        correct = history.series("val_accuracy").finite().values
        if (
            len(best) < 3
            or not math.isfinite(stand.baseline)
            or not stand.remaining >= self.remaining_in_chain
        ):
            return False
        left = float(best.min()) / stand.baseline
        if len(correct) and math.isfinite(stand.chance) and stand.chance < 0.999:
            left = min(left, (1.0 - float(correct.max())) / (1.0 - stand.chance))
        return left >= needed

    def _targets(self, history: History) -> Iterator[outliers.Finding]:
        if history.facts.get("task") not in ("regression", None, "unknown"):
            return
        yield from outliers.in_targets(history, self.outlier)
        mean, std = _early_median(history, "target_mean"), _early_median(history, "target_std")
        size = math.hypot(mean, std)
        figures = {"target_mean": curves.rounded(mean), "target_std": curves.rounded(std)}
        facts = history.facts
        if facts.get("loss") == "poisson_nll_loss" and dict(facts.get("loss_args") or {}).get("log_input"):
            return  # their logarithms are answered: counts are large in small steps of those
        if size > self.target_large:
            yield f"targets have a typical size of {size:.3g}", figures, size / self.target_large
        elif 0 < size < self.target_small:
            yield f"targets have a typical size of {size:.2g}", figures, self.target_small / size
