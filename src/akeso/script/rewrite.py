"""A prescription as a change to the script: a diff where the place can be found, plain words elsewhere.

The user's files are read, never written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from akeso.remedies.edit import EVERYTHING, Edit, Prescription
from akeso.script import rewrite_data as data
from akeso.script import rewrite_loop as loop
from akeso.script import rewrite_losses as losses
from akeso.script import rewrite_model as model
from akeso.script import rewrite_norms as norms
from akeso.script import rewrite_order as order
from akeso.script import rewrite_shortcuts as shortcuts
from akeso.script import rewrite_weights as weights
from akeso.script.clues import Clues
from akeso.script.draft import Draft
from akeso.script.rewrite_guards import guard_functions
from akeso.script.rewrite_modes import set_mode
from akeso.script.rewrite_settings import setting_in_code, setting_in_files


@dataclass(frozen=True, slots=True)
class Change:
    """What to change: a unified diff, and in words what the diff does not show.

    ``names`` are parts of the model by what they were called when the cure was tried, with what the change calls them.
    """

    diff: str
    words: tuple[str, ...]
    names: Mapping[str, str] = field(default_factory=dict)


#: Changes the draft and answers with nothing, or with words where the place was not found.
Rule = Callable[[Draft, Edit, Clues, Prescription], str | None]

RULES: Final[Mapping[str, Rule]] = {
    "substitute-activation": model.substitute_activation,
    "insert-normalisation": norms.insert_normalisation,
    "turn-recurrence": model.turn_recurrence,
    "turn-pictures": data.turn_pictures,
    "reinitialise": weights.reinitialise,
    "set-dropout": model.set_dropout,
    "set-averaging": model.set_averaging,
    "add-residual": shortcuts.add_residual,
    "embed-inputs": model.embed_inputs,
    "set-output-bias": model.set_output_bias,
    "scale-inputs": data.scale_inputs,
    "set-learning-rate": loop.set_learning_rate,
    "find-learning-rate": loop.find_learning_rate,
    "substitute-optimizer": loop.substitute_optimizer,
    "set-weight-decay": loop.set_weight_decay,
    "clip-gradient": loop.clip_gradient,
    "unscale-gradients": order.unscale_gradients,
    "loosen-clipping": loop.loosen_clipping,
    "keep-attached": loop.keep_attached,
    "guard-functions": guard_functions,
    "shuffle-data": loop.shuffle_data,
    "warm-up": loop.warm_up,
    "hold-learning-rate": loop.hold_learning_rate,
    "pace-schedule": loop.pace_schedule,
    "add-zero-grad": loop.add_zero_grad,
    "delay-zero-grad": order.delay_zero_grad,
    "set-batch-size": loop.set_batch_size,
    "substitute-loss": losses.substitute_loss,
    "scale-targets": losses.scale_targets,
    "scale-logits": losses.scale_logits,
    "mean-reduction": losses.mean_reduction,
    "fix-broadcast": losses.fix_broadcast,
    "weight-classes": losses.weight_classes,
    "standardise-targets": data.standardise_targets,
    "set-mode": set_mode,
    "unfreeze": loop.unfreeze,
    "add-to-optimizer": loop.add_to_optimizer,
    "reseed": loop.reseed,
}


#: Edits of what may be made in several files; the others are done where their place is found first.
_EVERYWHERE: Final = frozenset(
    {
        "insert-normalisation",
        "add-residual",
        "set-dropout",
        "set-averaging",
        "mean-reduction",
        "loosen-clipping",
        "unscale-gradients",
        "set-mode",
        "guard-functions",
    }
)
#: Edits of what may stand among settings, with what the optimizer calls it.
_SETTINGS: Final = {"set-learning-rate": "lr", "set-weight-decay": "weight_decay"}
#: The same loss of scores and of probabilities.
_SCORES, _PROBABILITIES = "binary_cross_entropy_with_logits", "binary_cross_entropy"
#: Edits whose words are about one file alone, whatever was done in others.
_PIECEMEAL: Final = frozenset({"insert-normalisation", "add-residual"})


def rewrite(path: Path, prescription: Prescription, clues: Clues) -> Change:
    """The change to make to the script at ``path`` and to files of the user's that it imports, for the cure to hold."""
    real = os.path.realpath(path)
    script = _drafted(real)
    if script is None:
        return Change("", tuple(edit.describe() for edit in prescription))
    others = sorted(clues.files() - {real})
    drafts = [(real, script), *((file, draft) for file in others if (draft := _drafted(file)) is not None)]
    known = [draft for _, draft in drafts]
    prescription = _of_scores(_of_probabilities(_completed(prescription, clues), known), known, clues)
    words, settings = [], ""
    for edit in prescription:
        said = _made(edit, drafts, clues, prescription)
        found = _in_settings(edit, drafts, clues) if said else None
        words += said if found is None else []
        settings += found or ""
    changed = [draft for _, draft in drafts if draft.changed]
    try:
        for draft in changed:
            compile(draft.revised(), draft.path, "exec")
    except SyntaxError:
        return Change("", tuple(edit.describe() for edit in prescription))
    names = {old: new for _, draft in drafts for old, new in draft.names.items()}
    return Change("".join(draft.diff() for draft in changed) + settings, tuple(words), names)


def _in_settings(edit: Edit, drafts: Sequence[tuple[str, Draft]], clues: Clues) -> str | None:
    """The diff of a settings file, where a figure that has no place where the optimizer is made stands in one.

    Empty where it stands among the settings in the code itself, and is changed there.
    """
    known = clues.facts.get("optimizers") or ()
    what = _SETTINGS.get(edit.remedy, "")
    old = known[0].get(what) if known else None
    if "to" not in edit.values or not isinstance(old, float):
        return None
    new = float(edit.values["to"])
    if setting_in_code([draft for _, draft in drafts], what, old, new):
        return ""
    sources = {file: draft.source for file, draft in drafts}
    return setting_in_files(sources, what, old, new)


def _completed(prescription: Prescription, clues: Clues) -> Prescription:
    """With what came with the cure unasked, and has to be done in the script as well.

    That is what a loss took off the output by itself to get at the scores, and modes that norms need to be told.
    """
    taken = clues.facts.get("taken_off")
    named = any(edit.where == "output" for edit in prescription.of("substitute-activation"))
    first, last = [], []
    if taken and not named and prescription.of("substitute-loss"):
        first = [Edit("substitute-activation", "output", {"from": taken, "to": "none"})]
    if clues.facts.get("modes_set") and not prescription.of("set-mode"):
        last = [Edit("set-mode", "", {"to": "by-phase"})]
    return Prescription([*first, *prescription, *last])


def _of_probabilities(prescription: Prescription, drafts: Sequence[Draft]) -> Prescription:
    """With a loss of probabilities in the place of one of scores, where a sigmoid would be taken off for that.

    What else the script does with the model's answers, such as holding them against 0.5, stays right then. Under mixed
    precision torch refuses that loss.
    """
    taken = [
        edit
        for edit in prescription.of("substitute-activation")
        if edit.where == "output"
        and edit.values.get("from") == "Sigmoid"
        and edit.values.get("in") != "model"
    ]
    taken = [edit for edit in taken if edit.values["to"] in ("none", "Identity")]
    scores = [edit for edit in prescription.of("substitute-loss") if edit.values["to"] == _SCORES]
    weighted = bool(prescription.of("weight-classes"))  # of which only the loss of scores knows
    if not taken or not scores or weighted or any(model.mixed_precision(draft) for draft in drafts):
        return prescription
    instead = {edit: Edit(edit.remedy, edit.where, {**edit.values, "to": _PROBABILITIES}) for edit in scores}
    return Prescription(instead.get(edit, edit) for edit in prescription if edit not in taken)


def _of_scores(prescription: Prescription, drafts: Sequence[Draft], clues: Clues) -> Prescription:
    """With cross entropy in the place of a loss of logarithms, where the model gives bare scores to it.

    That is the same to the last digit, and the model stays as it is.
    """
    logarithms = [
        edit
        for edit in prescription.of("substitute-activation")
        if edit.where == "output"
        and (edit.values.get("from"), edit.values["to"]) == (EVERYTHING, "LogSoftmax")
    ]
    called = any(any(draft.calls({"NLLLoss", "nll_loss"})) for draft in drafts)
    if not logarithms or not called or clues.facts.get("bypassed"):
        return prescription
    loss = Edit("substitute-loss", "", {"from": "nll_loss", "to": "cross_entropy"})
    return Prescription(loss if edit in logarithms else edit for edit in prescription)


def _made(
    edit: Edit, drafts: Sequence[tuple[str, Draft]], clues: Clues, prescription: Prescription
) -> list[str]:
    """Make an edit wherever it has its place, and give the words that go with it."""
    rule = RULES.get(edit.remedy)
    if rule is None:
        return [edit.describe()]
    hidden = edit.remedy == "substitute-activation" and edit.where != "output"
    instead: list[str] = []
    beside: list[str] = []
    done = False
    for file, draft in drafts:
        before = draft.revised()
        said = rule(draft, edit, clues.of(file), prescription)
        if draft.revised() == before and edit.remedy not in _PIECEMEAL:
            instead += [said] if said else []
            done = done or not said
            continue
        done = True
        beside += [said] if said else []
        if not (hidden or edit.remedy in _EVERYWHERE):
            break
    return list(dict.fromkeys(beside)) if done else instead[:1]


def _drafted(file: str) -> Draft | None:
    try:
        return Draft(_shown(file), Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None


def _shown(real: str) -> str:
    """A file's path as it is seen from here, so that the diff can be applied here; its name where it lies elsewhere."""
    here = os.path.realpath(os.getcwd()) + os.sep
    return real.removeprefix(here) if real.startswith(here) else os.path.basename(real)
