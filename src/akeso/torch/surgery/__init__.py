"""Everything that changes a live model, its loss, its optimizer or its inputs."""

from __future__ import annotations

from akeso.torch.surgery.anatomy import Anatomy, Site, examine_model
from akeso.torch.surgery.inputs import scale_inputs, standardise_targets
from akeso.torch.surgery.losses import TaskLoss, averaged, class_weights, loss_name, weighted
from akeso.torch.surgery.operation import MODEL_REMEDIES, Operation, operate
from akeso.torch.surgery.optimizers import adopt, build_optimizer, clip, scale_rates, successor

__all__ = [
    "MODEL_REMEDIES",
    "Anatomy",
    "Operation",
    "Site",
    "TaskLoss",
    "adopt",
    "averaged",
    "build_optimizer",
    "class_weights",
    "clip",
    "examine_model",
    "loss_name",
    "operate",
    "scale_inputs",
    "scale_rates",
    "standardise_targets",
    "successor",
    "weighted",
]
