"""The families of edits, in the order in which they act."""

from __future__ import annotations

from akeso.script.prescribed.part import Part
from akeso.script.prescribed.parts.gradients import Gradients
from akeso.script.prescribed.parts.inputs import Inputs
from akeso.script.prescribed.parts.loaders import Loaders
from akeso.script.prescribed.parts.losses import Losses
from akeso.script.prescribed.parts.models import Models
from akeso.script.prescribed.parts.modes import Modes
from akeso.script.prescribed.parts.optimizers import Optimizers
from akeso.script.prescribed.parts.outputs import Outputs
from akeso.script.prescribed.parts.outside import Outside
from akeso.script.prescribed.parts.schedules import Schedules
from akeso.script.prescribed.parts.updates import Updates

#: What an :class:`~akeso.script.prescribed.operation.Operation` is made of.
PARTS: tuple[type[Part], ...] = (
    Modes, Inputs, Optimizers, Models, Outside, Outputs, Losses, Gradients, Updates, Schedules, Loaders,
)  # fmt: skip
