"""What cannot be done to a script from outside, and scripts that cannot be treated at all, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from akeso.errors import BadInput, Refused
from akeso.remedies.edit import Edit
from akeso.treatment.script_case import Case

#: Edits that are made where a loss function of torch is called.
_BY_LOSS: Final = (
    "substitute-loss",
    "weight-classes",
    "standardise-targets",
    "scale-targets",
    "scale-logits",
    "set-output-bias",
    "mean-reduction",
)


def refusal(edit: Edit, ledger: Mapping[str, Any] | None) -> str | None:
    """Why an edit cannot be made, by what the untreated run has shown where it was run; None where it may be tried."""
    if edit.remedy == "roll-back":
        return "a script cannot be taken back to an earlier step from outside"
    if edit.remedy == "keep-best-weights":
        return "which of its weights a script keeps is its own doing"
    if ledger is None:
        return None
    places = ledger.get("places", {})
    if edit.remedy in ("set-batch-size", "shuffle-data") and "loader" not in places:
        return "the script makes its batches without a DataLoader"
    sizes = ledger.get("facts", {}).get("batch_sizes")
    if edit.remedy == "set-batch-size" and sizes and set(sizes) == {int(edit.values["to"])}:
        return f"batches are of {sizes[0]} samples already"
    if edit.remedy in _BY_LOSS and "loss" not in places:
        return "the script computes its loss by hand, not with a loss function of torch"
    return None


def refuse_untrained(case: Case, described: str) -> None:
    """Refuse a script whose first run did not come to train anything."""
    answer, failed = case.answer, case.failed
    assert answer is not None
    if failed and not answer.trained:
        raise BadInput(
            f"{described} fails by itself, before it trains: {failed}; "
            f"what it printed is in {case.folder / 'output.log'}"
        )
    if not answer.trained:
        raise Refused(
            f"{described} trains nothing: no step of a torch optimizer was seen; what Keras trains on "
            "TensorFlow or JAX is watched by `akeso run`, but not treated"
        )
