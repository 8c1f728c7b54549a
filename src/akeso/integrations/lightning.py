"""``HealthCallback``: the epochs of a Lightning trainer become the reports of a trial."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from akeso.errors import BadInput
from akeso.integrations._checks import a_watch
from akeso.search.health import Health

if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:
    from akeso.extras import require

    # Lightning is published under two names; the one that the script imported is the one that trains.
    _NAME = "pytorch_lightning" if "pytorch_lightning" in sys.modules else "lightning.pytorch"
    Callback = require(_NAME, "lightning", "HealthCallback").Callback


class HealthCallback(Callback):
    """Reports a logged metric to the watch of a trial after every epoch of a trainer.

    A trial that is to end leaves ``trainer.fit`` and the ``with`` block around it, pruned or complete::

        def objective(trial):
            module = Net(rate=trial.suggest_float("rate", 1e-4, 1.0, log=True))
            with akeso.search.watch(trial, module, epochs=20) as health:
                trainer = Trainer(max_epochs=20, callbacks=[HealthCallback(health, "val_loss")])
                trainer.fit(module, data)
            return health.value

    With validation only every few epochs only these are reported; ``epochs`` of the watch is the number of reports.

    Args:
        health: What ``akeso.search.watch`` gave.
        monitor: The name under which the module logs the metric: ``self.log("val_loss", ...)``.
    """

    def __init__(self, health: Health, monitor: str) -> None:
        self._health, self._monitor = a_watch(health, "trainer.fit"), monitor
        self._validated = False

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Refuses what cannot work before anything is trained."""
        if trainer.world_size > 1:
            raise BadInput(
                f"a trial is trained by one process, but this trainer has {trainer.world_size}; several processes "
                "would have to agree when it ends. Give every trial one device and run trials side by side"
            )

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Notes that there are new values."""
        self._validated = not trainer.sanity_checking

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Reports, unless this epoch had no validation while others have."""
        fresh = self._validated or not trainer.enable_validation
        self._validated = False
        if not fresh:
            return
        logged = trainer.callback_metrics
        if self._monitor not in logged:
            raise BadInput(
                f"Lightning has logged no {self._monitor!r} by the end of epoch {trainer.current_epoch}, only "
                f"{', '.join(sorted(logged)) or 'nothing at all'}; log it with self.log in the module"
            )
        self._health.report(logged[self._monitor])
