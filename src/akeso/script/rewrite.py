"""A prescription as a change to the script: a diff where the place can be found, plain words elsewhere.

The user's file is read, never written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from akeso.remedies.edit import Edit, Prescription
from akeso.script import rewrite_loop as loop
from akeso.script import rewrite_model as model
from akeso.script.draft import Draft


@dataclass(frozen=True, slots=True)
class Change:
    """What to change: a unified diff, and in words what the diff does not show."""

    diff: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Clues:
    """What a run has shown of where things are in the script."""

    places: Mapping[str, Sequence[Mapping[str, Any]]]
    sites: Sequence[Mapping[str, Any]]
    facts: Mapping[str, Any]

    def lines(self, kind: str, path: str) -> list[int]:
        """The lines of a file where something of this kind is made or called."""
        return [int(place["line"]) for place in self.places.get(kind, ()) if place["file"] == path]


#: Changes the draft and answers with nothing, or with words where the place was not found.
Rule = Callable[[Draft, Edit, Clues, Prescription], str | None]

RULES: Final[Mapping[str, Rule]] = {
    "substitute-activation": model.substitute_activation,
    "insert-normalisation": model.insert_normalisation,
    "reinitialise": model.reinitialise,
    "set-dropout": model.set_dropout,
    "add-residual": model.add_residual,
    "embed-inputs": model.embed_inputs,
    "set-output-bias": model.set_output_bias,
    "scale-inputs": model.scale_inputs,
    "set-learning-rate": loop.set_learning_rate,
    "find-learning-rate": loop.find_learning_rate,
    "substitute-optimizer": loop.substitute_optimizer,
    "set-weight-decay": loop.set_weight_decay,
    "clip-gradient": loop.clip_gradient,
    "loosen-clipping": loop.loosen_clipping,
    "keep-attached": loop.keep_attached,
    "guard-functions": loop.guard_functions,
    "shuffle-data": loop.shuffle_data,
    "warm-up": loop.warm_up,
    "hold-learning-rate": loop.hold_learning_rate,
    "add-zero-grad": loop.add_zero_grad,
    "set-batch-size": loop.set_batch_size,
    "substitute-loss": loop.substitute_loss,
    "scale-targets": loop.scale_targets,
    "mean-reduction": loop.mean_reduction,
    "fix-broadcast": loop.fix_broadcast,
    "weight-classes": loop.weight_classes,
    "standardise-targets": loop.standardise_targets,
    "set-mode": loop.set_mode,
    "unfreeze": loop.unfreeze,
    "add-to-optimizer": loop.add_to_optimizer,
    "reseed": loop.reseed,
}


def rewrite(path: Path, prescription: Prescription, clues: Clues) -> Change:
    """The change to make to the script at ``path`` for the prescription to hold."""
    real = os.path.realpath(path)
    try:
        draft = Draft(_shown(real), Path(real).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return Change("", tuple(edit.describe() for edit in prescription))
    words = []
    own = Clues(
        {kind: [place for place in places if place["file"] == real] for kind, places in clues.places.items()},
        [site for site in clues.sites if site["place"] and site["place"]["file"] == real],
        clues.facts,
    )
    for edit in prescription:
        rule = RULES.get(edit.remedy)
        said = rule(draft, edit, own, prescription) if rule is not None else edit.describe()
        if said:
            words.append(said)
    if not draft.changed:
        return Change("", tuple(words))
    try:
        compile(draft.revised(), path.name, "exec")
    except SyntaxError:
        return Change("", tuple(edit.describe() for edit in prescription))
    return Change(draft.diff(), tuple(words))


def _shown(real: str) -> str:
    """A file's path as it is seen from here, so that the diff can be applied here; its name where it lies elsewhere."""
    here = os.path.realpath(os.getcwd()) + os.sep
    return real.removeprefix(here) if real.startswith(here) else os.path.basename(real)
