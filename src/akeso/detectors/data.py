"""What the network is fed with: inputs and targets out of scale, one-sided or senseless."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from akeso.detectors import curves, network, outliers
from akeso.detectors._base import Detector
from akeso.detectors.standing import Standing, standing, top_share, validation_loss
from akeso.detectors.steps import travel
from akeso.diagnosis import Symptom
from akeso.history import History


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
    ordered = sorted(history.layers, key=lambda layer: layer.order)
    first = next((layer for layer in ordered if layer.parameters), None)
    return first is not None and "embedding" in f"{first.role} {first.kind}".lower()


def sorted_by_class(history: History) -> bool:
    """Whether batches hold one class each, and not always the same: all of them together are far from even."""
    share = top_share(history)
    whole = history.series("baseline_loss").finite().values
    known = history.facts.get("loss") == "cross_entropy" and len(whole) >= 6
    if not known or not share > 0.9 or curves.median(history.series("batch_size").values) < 8:
        return False
    if dict(history.facts.get("loss_args") or {}).get("weight"):
        return False
    # What a constant prediction loses on all that was seen is the entropy of the classes; were the largest of
    # them as large as it is in a batch, that could not be more than this.
    classes = max(2, int(history.facts.get("classes") or 2))
    rest = 1.0 - share
    most = -share * math.log(share) + (rest * math.log((classes - 1) / rest) if rest > 0 else 0.0)
    return curves.median(curves.tail(whole, 0.5, 3)) > 2.0 * most + 0.3


def _normalised(history: History) -> bool:
    """Whether a normalisation layer takes the scale out of the inputs before anything can suffer from it."""
    ordered = sorted((layer for layer in history.layers if layer.parameters), key=lambda layer: layer.order)
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
                **stand.evidence(),
            },
            f"The data is {'out of scale' if off_scale else 'not as it should be'}: {words}; "
            "the training suffers from it.",
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
            "The data comes sorted by class: a batch holds one class, the next ones another. Shuffle it.",
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
        if size > self.target_large:
            yield f"targets have a typical size of {size:.3g}", figures, size / self.target_large
        elif 0 < size < self.target_small:
            yield f"targets have a typical size of {size:.2g}", figures, self.target_small / size


@dataclass(frozen=True)
class ClassImbalance(Detector):
    """One class makes up nearly everything, and the model answers with nothing else."""

    name: ClassVar[str] = "class-imbalance"
    min_steps: int = 50
    top_share: float = 0.8
    collapsed: float = 0.98
    remaining: float = 0.96
    shortfall: float = 0.3

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        if stand.steps < self.min_steps or stand.adversarial or stand.broken:
            return
        if sorted_by_class(history):
            return
        top = top_share(history)
        said = history.series("prediction_top_share").finite()
        if not network.up_to_date(history, "prediction_top_share"):
            return
        recent = curves.mean(curves.tail(said.values, 0.3, 5))
        correct = curves.median(curves.tail(history.series("val_accuracy").finite().values, 0.3, 2))
        harmed = stand.suffers(self.remaining) or correct < top - self.shortfall
        if not top >= self.top_share or not recent >= self.collapsed or not harmed:
            return
        if curves.mean(curves.tail(history.series("accuracy").finite().values, 0.3, 5)) < 0.5:
            return  # it answers with one class, but with another one
        step = curves.first_step_where(said, np.asarray(said.values >= self.collapsed - 0.05, float))
        yield Symptom(
            self.name,
            "error",
            min(0.9, 0.5 + 0.4 * top),
            step,
            "",
            {"target_top_share": round(top, 4), "prediction_top_share": round(recent, 4), **stand.evidence()},
            f"{top:.0%} of the samples belong to one class, and the model answers with it in "
            f"{recent:.0%} of all cases.",
        )


@dataclass(frozen=True)
class UnlearnableLabels(Detector):
    """Nothing can be learned although everything in the network looks well, or only samples are memorised."""

    name: ClassVar[str] = "unlearnable-labels"
    min_steps: int = 60
    min_share: float = 0.6
    remaining: float = 0.96
    travel: float = 0.3
    memorised: float = 0.8
    too_much: float = 1.5
    validation: float = 0.98
    min_evaluations: int = 3

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        if stand.steps < self.min_steps or stand.adversarial or stand.diverged:
            return
        if history.facts.get("task") == "autoencoder":
            return  # what is to be said is what was given
        if stand.remaining_loss > self.too_much:
            return  # it is worse than a constant on what it trains on: that is not for want of signal
        if not (math.isfinite(stand.share) and stand.share >= self.min_share):
            return
        yield from self._stuck(history, stand)

    def _stuck(self, history: History, stand: Standing) -> Iterator[Symptom]:
        way = travel(history, stand)
        if not way >= self.travel:
            return
        known, best, step = self._validation(history, stand)
        if known:
            if not best:
                return
            evidence = {"best_validation_over_constant": best}
            sentence = (
                "The labels carry no signal: on validation the model was never better than a "
                "constant prediction"
                + (
                    ", while it learns its training samples by heart."
                    if stand.remaining < self.memorised
                    else "."
                )
            )
        else:
            if not stand.remaining >= self.remaining or stand.recent.falls or stand.beats_constant:
                return
            evidence, step = {}, network.extent(history)[0]
            sentence = (
                "The labels carry no signal the model can find: it trains as it should, but the loss stays "
                "that of a constant prediction."
            )
        yield Symptom(
            self.name,
            "error",
            0.75 if known else 0.6,
            step,
            "",
            {"whole_run_over_weight": curves.rounded(way), **evidence, **stand.evidence()},
            sentence,
        )

    def _validation(self, history: History, stand: Standing) -> tuple[bool, float, int]:
        """Whether validation can tell, and if it was never good: its best loss over a constant's, and since when."""
        validation = validation_loss(history)
        correct = history.series("val_accuracy").finite()
        gain, luck = 0.0, 0.0
        if correct and math.isfinite(stand.chance) and stand.chance < 0.999:
            size = history.facts.get("val_size")
            count = size if isinstance(size, int) and size > 0 else 100
            luck = 3.0 * math.sqrt(stand.chance * (1.0 - stand.chance) / count)
            gain = curves.median(curves.tail(correct.values, 0.35, 2)) - stand.chance - luck
        if len(validation) < self.min_evaluations or not math.isfinite(stand.baseline):
            even = stand.chance * max(2, int(history.facts.get("classes") or 2)) <= 1.5
            if luck == 0.0 or len(correct) <= self.min_evaluations or not even:
                return False, 0.0, 0
            # Without a loss the accuracy has to tell: it never got beyond luck, while the training loss came down.
            # (Where one class is large, much can be learnt before any answer changes.)
            never = float(correct.values.max()) <= stand.chance + luck and stand.overall.falls
            return never, 1.0 if never else 0.0, int(correct.steps[0])
        best = float(validation.values.min()) / stand.baseline
        # Values may be predictable by a few percent, less than is known of their variance: such a signal shows in
        # validation that got better after its first time.
        late = validation.values[len(validation) // 2 :]
        learnt = stand.remaining < self.memorised or float(np.median(late)) >= float(validation.values[0])
        weak = history.facts.get("task") == "regression" and not learnt
        bad = best >= self.validation and gain <= 0.0 and not weak
        return True, float(f"{best:.3g}") if bad else 0.0, int(validation.steps[0])
