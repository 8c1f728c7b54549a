"""From problems to cures: which remedies are tried for which problem, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from akeso.diagnosis import Diagnosis
from akeso.history import History
from akeso.remedies._base import Remedy
from akeso.remedies.activation import SubstituteActivation, SubstituteGrowing
from akeso.remedies.chart import chart
from akeso.remedies.data import EmbedNames, ScaleInputs, Shuffle
from akeso.remedies.edit import Prescription
from akeso.remedies.initialiser import Reinitialise
from akeso.remedies.loop import (
    Averages,
    DelayZeroGrad,
    GuardFunctions,
    KeepAttached,
    Mode,
    RollBack,
    TrainEverything,
    TurnPictures,
    TurnRecurrence,
    ZeroGrad,
)
from akeso.remedies.normalisation import InsertNormalisation
from akeso.remedies.objective import (
    BareOutput,
    Broadcast,
    Imbalance,
    LossAndOutput,
    MeanReduction,
    RobustLoss,
    ScaleLogits,
    ScaleTargets,
    TargetUnits,
)
from akeso.remedies.optimizer import (
    LargerBatches,
    LessRegularisation,
    OrdinaryOptions,
    SmallerBatches,
    SubstituteOptimizer,
)
from akeso.remedies.rate import (
    ClipGradient,
    EitherRate,
    FindRate,
    HoldRate,
    LoosenClipping,
    LowerRate,
    LowerSpent,
    PaceSchedule,
    RaiseFurther,
    RaiseLow,
    RaiseRate,
    UnscaleGradients,
    WarmUp,
)
from akeso.remedies.shortcut import VERY_DEEP, AddResidual

#: Problem to remedies, the likeliest cure first; causes come before what they cause.
TABLE: Final[dict[str, tuple[Remedy, ...]]] = {
    "shape-broadcast": (Broadcast(),),
    "wrong-axis": (TurnRecurrence(), TurnPictures()),
    "missing-zero-grad": (ZeroGrad(),),
    "parameters-not-trained": (KeepAttached(), DelayZeroGrad(), TrainEverything()),
    "wrong-mode": (Mode(), Averages()),
    "improper-output-activation": (ScaleLogits(), LossAndOutput(output=True)),
    "improper-loss": (ScaleTargets(), LossAndOutput(), MeanReduction()),
    "abnormal-data": (Shuffle(), ScaleInputs(), EmbedNames(), RobustLoss(), TargetUnits()),
    "poor-initialisation": (Reinitialise(), InsertNormalisation(), SubstituteActivation()),
    "over-regularised": (LessRegularisation(),),
    "learning-rate-too-high": (
        MeanReduction(),
        SubstituteGrowing(),
        RobustLoss(),
        OrdinaryOptions(),
        LowerRate(),
        SubstituteOptimizer(),
        ClipGradient(),
        WarmUp(),
    ),
    "exploding-gradient": (
        MeanReduction(),
        RobustLoss(),
        Reinitialise(),
        SubstituteActivation(),
        InsertNormalisation(),
        ClipGradient(),
        LowerRate(),
    ),
    "dying-relu": (
        AddResidual(VERY_DEEP),
        SubstituteActivation(),
        InsertNormalisation(),
        LowerRate(),
        AddResidual(),
        Reinitialise(),
        WarmUp(),
    ),
    "saturated-activation": (SubstituteActivation(), Reinitialise(), InsertNormalisation(), ScaleInputs()),
    "vanishing-gradient": (
        UnscaleGradients(),
        LoosenClipping(),
        BareOutput(),
        AddResidual(VERY_DEEP),
        LowerSpent(),
        SubstituteActivation(),
        InsertNormalisation(),
        AddResidual(),
        Reinitialise(),
    ),
    "class-imbalance": (Imbalance(),),
    "learning-rate-too-low": (
        UnscaleGradients(),
        LoosenClipping(),
        OrdinaryOptions(),
        PaceSchedule(),
        HoldRate(),
        RaiseRate(),
        RaiseFurther(),
        SubstituteOptimizer(),
        FindRate(),
    ),
    "non-finite": (
        GuardFunctions(named=True),
        MeanReduction(),
        SubstituteGrowing(),
        RobustLoss(),
        LowerRate(),
        GuardFunctions(),
        ClipGradient(),
        InsertNormalisation(),
        Reinitialise(),
        ScaleInputs(),
        RollBack(),
    ),
    "oscillating-loss": (
        RobustLoss(),
        SubstituteOptimizer(only=("rprop",)),
        OrdinaryOptions(),
        LowerRate(),
        SubstituteOptimizer(),
        LargerBatches(),
        ClipGradient(),
        RollBack(),
    ),
    "loss-spike": (RollBack(), ClipGradient(), LowerRate()),
    "slow-convergence": (
        LessRegularisation(beyond=True),
        UnscaleGradients(),
        LoosenClipping(),
        OrdinaryOptions(),
        AddResidual(VERY_DEEP),
        SmallerBatches(few=True),
        PaceSchedule(),
        HoldRate(),
        RaiseRate(),
        RaiseFurther(),
        SubstituteOptimizer(),
        FindRate(),
        InsertNormalisation(),
        SmallerBatches(),
    ),
    "constant-prediction": (
        LessRegularisation(beyond=True),
        OrdinaryOptions(),
        RaiseLow(0),
        RaiseLow(1),
        Reinitialise(),
        AddResidual(VERY_DEEP),
        SubstituteOptimizer(),
        InsertNormalisation(),
        EitherRate(),
    ),
}

#: Remedies that only change how large steps are.
_RATES: Final = frozenset(
    {
        "set-learning-rate",
        "find-learning-rate",
        "warm-up",
        "hold-learning-rate",
        "pace-schedule",
        "clip-gradient",
    }
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A prescription with the problem it is meant for."""

    prescription: Prescription
    problem: str


def candidates(history: History, diagnoses: Sequence[Diagnosis]) -> list[Candidate]:
    """Cures for a run in the order in which they should be tried, each once.

    Diagnoses are ranked roots first. Of the first problem two cures come before the first of the next one, so
    that a wrong root does not use up all the trials. Where the optimizer's options are the fault, no rate is tried
    that leaves them as they are.
    """
    odd = chart(history).odd_options
    lines = [_doses(history, diagnoses, found.problem) for found in diagnoses if found.severity != "info"]
    found: list[Candidate] = []
    waiting = list(lines)
    while waiting:
        for position, line in enumerate(list(waiting)):
            for _ in range(2 if position == 0 else 1):
                candidate = next(line, None)
                if candidate is None:
                    waiting.remove(line)
                    break
                if odd and all(edit.remedy in _RATES for edit in candidate.prescription):
                    continue
                if candidate.prescription not in [other.prescription for other in found]:
                    found.append(candidate)
    return found


def treatable(diagnoses: Sequence[Diagnosis]) -> tuple[Diagnosis, ...]:
    """The diagnoses for which there is a remedy and which are more than a remark."""
    return tuple(found for found in diagnoses if found.problem in TABLE and found.severity != "info")


def _doses(history: History, diagnoses: Sequence[Diagnosis], problem: str) -> Iterator[Candidate]:
    """First doses of every remedy for a problem, then second ones, and so on."""
    streams = [iter(remedy.prescribe(history, diagnoses)) for remedy in TABLE.get(problem, ())]
    while streams:
        for stream in list(streams):
            dose = next(stream, None)
            if dose is None:
                streams.remove(stream)
            elif dose:
                yield Candidate(dose, problem)
