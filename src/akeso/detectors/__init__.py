"""Detectors: pure functions from a history to symptoms, one file per family of problems."""

from __future__ import annotations

from akeso.detectors import autotrainer, bttackler
from akeso.detectors._base import Detector
from akeso.detectors.activations import DyingRelu, SaturatedActivation
from akeso.detectors.axes import WrongAxis
from akeso.detectors.bugs import (
    MissingZeroGrad,
    NonFinite,
    ShapeBroadcast,
    WrongMode,
)
from akeso.detectors.constant import ConstantPrediction
from akeso.detectors.data import AbnormalData
from akeso.detectors.gradients import ExplodingGradient, VanishingGradient
from akeso.detectors.initialisation import PoorInitialisation
from akeso.detectors.labels import ClassImbalance, UnlearnableLabels
from akeso.detectors.objective import ImproperLoss
from akeso.detectors.oscillation import OscillatingLoss
from akeso.detectors.overshooting import LearningRateTooHigh
from akeso.detectors.progress import NoMoreGain, SlowConvergence
from akeso.detectors.rates import LearningRateTooLow
from akeso.detectors.regularisation import OverRegularised
from akeso.detectors.sequences import SequenceLeak, WrongPlaces
from akeso.detectors.task import ImproperOutputActivation
from akeso.detectors.untrained import ParametersNotTrained
from akeso.detectors.validation import DataLeakage, Overfitting, ValidationMismatch

__all__ = ["DETECTORS", "Detector"]

_CLASSES: tuple[type[Detector], ...] = (
    AbnormalData,
    ClassImbalance,
    ConstantPrediction,
    DataLeakage,
    DyingRelu,
    ExplodingGradient,
    ImproperLoss,
    ImproperOutputActivation,
    LearningRateTooHigh,
    LearningRateTooLow,
    MissingZeroGrad,
    NoMoreGain,
    NonFinite,
    OscillatingLoss,
    OverRegularised,
    Overfitting,
    ParametersNotTrained,
    PoorInitialisation,
    SaturatedActivation,
    SequenceLeak,
    ShapeBroadcast,
    SlowConvergence,
    UnlearnableLabels,
    ValidationMismatch,
    VanishingGradient,
    WrongAxis,
    WrongMode,
    WrongPlaces,
    *autotrainer.RULES,
    *bttackler.INDICATORS,
)

#: Every detector class by the name under which profiles know it.
DETECTORS: dict[str, type[Detector]] = {detector.name: detector for detector in _CLASSES}
