"""``HealthCallback``: the epochs of ``model.fit`` in Keras become the reports of a trial."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from akeso.errors import BadInput
from akeso.integrations._checks import a_watch
from akeso.search.health import Health

if TYPE_CHECKING:

    class Callback:
        """What Keras calls at the end of epochs; its package has no types."""
else:
    from akeso.extras import require

    Callback = require("keras", "keras", "HealthCallback").callbacks.Callback


class HealthCallback(Callback):
    """Reports a metric to the watch of a trial after every epoch of ``model.fit``, on any backend of Keras.

    A trial that is to end leaves ``model.fit`` and the ``with`` block around it, pruned or complete::

        def objective(trial):
            model = build(rate=trial.suggest_float("rate", 1e-4, 1.0, log=True))
            with akeso.search.watch(trial, model, epochs=20) as health:
                model.fit(x, y, epochs=20, validation_split=0.2, callbacks=[HealthCallback(health, "val_loss")])
            return health.value

    A network on the torch backend that is given to ``watch`` is looked into, and ended within steps where it is broken.
    On other backends leave it out: the trial is judged by the metric, the training loss and the hyperparameters.
    With validation only every few epochs only these are reported; ``epochs`` of the watch is the number of reports.

    Args:
        health: What ``akeso.search.watch`` gave.
        monitor: The name under which Keras logs the metric.
    """

    def __init__(self, health: Health, monitor: str = "val_loss") -> None:
        super().__init__()
        self._health, self._monitor = a_watch(health, "model.fit"), monitor
        self._reported = False
        self._logged: tuple[str, ...] = ()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Reports, unless this epoch had no validation."""
        logs = logs or {}
        self._logged = tuple(sorted(logs))
        if self._monitor in logs:
            self._reported = True
            self._health.report(logs[self._monitor], loss=logs.get("loss", math.nan))
        elif not self._monitor.startswith("val_") or any(name.startswith("val_") for name in logs):
            raise self._missing()

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """An error where there was never anything to report."""
        if self._logged and not self._reported:
            raise self._missing()

    def _missing(self) -> BadInput:
        return BadInput(
            f"Keras has logged no {self._monitor!r}, only {', '.join(self._logged) or 'nothing at all'}; name one of "
            "these, or give fit validation data and compile the model with the metric"
        )
