"""A cure as data: edits that can be written down, sent to another process and applied there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from akeso.errors import BadInput

#: Every remedy by the name that edits carry, with what it changes in words. Values of an edit:
#:
#: ======================  ==========================================================================
#: substitute-activation   ``from``, ``to`` (class name of torch.nn, "none" for no function); where:
#:                         "hidden", "output" or an activation site; ``in``: "model" where an output's
#:                         function is to leave the model itself and not the loss alone; ``from`` an output
#:                         may be "everything" that comes after the last layer
#: insert-normalisation    ``kind``: "batch", "layer" or "group"; where: "hidden"
#: add-residual            where: "hidden"
#: turn-recurrence         where: a recurrent layer, which then takes time where it took samples and the reverse
#: turn-pictures           none: the axis of colours is moved where reshaping has only renamed it
#: reinitialise            ``scheme``: "auto", "he", "xavier", "lecun" or "orthogonal"; ``tables``: "small" where
#:                         embeddings are drawn small whatever they are
#: set-output-bias         ``to``: "prior"
#: unfreeze                where: a parameter, or "all"
#: add-to-optimizer        where: a parameter, or "all"; ``stage``: "last" where a training has several, and the
#:                         parameters are missing in the last of them
#: keep-attached           none: nothing is cut off from the graph while the model computes
#: set-mode                ``to``: "train" while training, "eval" while evaluating ("by-phase")
#: clip-gradient           ``kind``: "norm" or "value"; ``limit``
#: unscale-gradients       none: what the program clips to holds for gradients without the loss scale
#: loosen-clipping         ``to``: the least norm or value that the program's own clipping leaves
#: guard-functions         none: roots, logarithms and powers are kept off the values where their slope is infinite
#: shuffle-data            none
#: set-learning-rate       ``to``, or ``factor``
#: find-learning-rate      ``low``, ``high``, ``steps``: a range test, then the rate it suggests
#: warm-up                 ``steps``
#: hold-learning-rate      none: schedules no longer lower it
#: pace-schedule           ``every``: schedules go on once in so many of their steps, those of one pass over the data
#: substitute-optimizer    ``to``: class name of torch.optim; ``lr``; further keyword arguments
#: set-weight-decay        ``to``
#: set-dropout             ``to``
#: set-averaging           ``to``: the momentum of batch norms whose running averages hardly follow
#: add-zero-grad           none
#: delay-zero-grad         none: gradients that the program clears between backward pass and step are kept for the step
#: set-batch-size          ``to``
#: substitute-loss         ``from``, ``to`` (name of torch.nn.functional); ``log_input``: the same loss of counts, told
#:                         whether it is given logarithms of rates
#: fix-broadcast           none
#: mean-reduction          none
#: weight-classes          ``kind``: "inverse-frequency"
#: standardise-targets     none
#: scale-targets           ``low``, ``high``: targets between these are brought between 0 and 1
#: scale-logits            ``factor``: what cross entropy takes is multiplied by it
#: scale-inputs            ``kind``: "standard", "none" to clean alone; ``nan``: "impute"; ``outliers``: "clip", "keep"
#: embed-inputs            ``names``: the largest number that stands for one
#: roll-back               ``step``, ``skip``, ``factor``
#: keep-best-weights       none: what is handed back are the weights of the best evaluation, not the last ones
#: reseed                  ``seed``
#: ======================  ==========================================================================
EVERYTHING = "everything"
REMEDIES: Mapping[str, str] = {
    "substitute-activation": "another activation function",
    "insert-normalisation": "normalisation before activations",
    "add-residual": "residual connections around equal-width layers",
    "turn-recurrence": "a recurrent layer that runs along time instead of along the samples of a batch",
    "turn-pictures": "pictures whose axis of colours is moved instead of renamed",
    "reinitialise": "new initial weights",
    "set-output-bias": "output bias at the class prior",
    "unfreeze": "frozen parameters made trainable",
    "add-to-optimizer": "missing parameters handed to the optimizer",
    "keep-attached": "nothing cut off from the graph inside the model",
    "set-mode": "training mode while training, evaluation mode while evaluating",
    "clip-gradient": "gradient clipping",
    "unscale-gradients": "gradients clipped once the loss scale is taken off them",
    "loosen-clipping": "gradients clipped less tightly",
    "guard-functions": "roots and logarithms kept off values where their slope is infinite",
    "shuffle-data": "training data shuffled",
    "set-learning-rate": "another learning rate",
    "find-learning-rate": "a learning rate found by a range test",
    "warm-up": "learning-rate warm-up",
    "hold-learning-rate": "a learning rate that schedules do not lower",
    "pace-schedule": "schedules advanced once a pass over the data instead of with every batch",
    "substitute-optimizer": "another optimizer",
    "set-weight-decay": "another weight decay",
    "set-dropout": "less dropout",
    "set-averaging": "running averages of batch normalisation that follow the training",
    "add-zero-grad": "gradients cleared before each backward pass",
    "delay-zero-grad": "gradients cleared after the step instead of before it",
    "set-batch-size": "another batch size",
    "substitute-loss": "another loss function",
    "fix-broadcast": "output and target brought to the same shape",
    "mean-reduction": "loss averaged over the batch instead of summed",
    "weight-classes": "rare classes weighted up",
    "standardise-targets": "targets standardised, predictions handed back in the original units",
    "scale-targets": "targets between 0 and 1",
    "scale-logits": "logits multiplied before cross entropy",
    "embed-inputs": "numbers of names looked up instead of multiplied",
    "scale-inputs": "inputs cleaned and scaled by the training data",
    "roll-back": "back to a snapshot before the trouble",
    "keep-best-weights": "the weights of the best evaluation instead of the last ones",
    "reseed": "another seed",
}


@dataclass(frozen=True, slots=True)
class Edit:
    """One change to a training program.

    >>> Edit("substitute-activation", "hidden", {"from": "Sigmoid", "to": "SELU"}).to_dict()
    {'remedy': 'substitute-activation', 'from': 'Sigmoid', 'to': 'SELU', 'where': 'hidden'}
    """

    remedy: str
    where: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.remedy not in REMEDIES:
            known = ", ".join(sorted(REMEDIES))
            raise BadInput(f"There is no remedy {self.remedy!r}. Known remedies: {known}.")

    def __hash__(self) -> int:
        return hash((self.remedy, self.where, repr(sorted(self.values.items(), key=lambda item: item[0]))))

    def to_dict(self) -> dict[str, Any]:
        """The edit as plain JSON values."""
        result: dict[str, Any] = {"remedy": self.remedy, **self.values}
        if self.where:
            result["where"] = self.where
        return result

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Edit:
        """The edit that :meth:`to_dict` wrote."""
        if "remedy" not in data:
            raise BadInput(f"An edit needs a 'remedy', but got {dict(data)!r}.")
        values = {key: value for key, value in data.items() if key not in ("remedy", "where")}
        return cls(str(data["remedy"]), str(data.get("where", "")), values)

    def describe(self) -> str:
        """The edit in a few words.

        >>> Edit("set-batch-size", values={"to": 64}).describe()
        'set-batch-size (to 64)'
        """
        parts = [self.where] if self.where else []
        parts += [f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in
                  self.values.items()]  # fmt: skip
        return f"{self.remedy} ({', '.join(parts)})" if parts else self.remedy


class Prescription(tuple[Edit, ...]):
    """A cure dosed for one run: edits in the order in which they are applied.

    >>> cure = Prescription([Edit("clip-gradient", values={"kind": "norm", "limit": 1.0})])
    >>> Prescription.from_list(cure.to_list()) == cure
    True
    """

    __slots__ = ()

    def __new__(cls, edits: Iterable[Edit] = ()) -> Prescription:
        return super().__new__(cls, tuple(edits))

    def __iter__(self) -> Iterator[Edit]:
        return super().__iter__()

    def to_list(self) -> list[dict[str, Any]]:
        """The edits as plain JSON values."""
        return [edit.to_dict() for edit in self]

    @classmethod
    def from_list(cls, data: Iterable[Mapping[str, Any]]) -> Prescription:
        """The prescription that :meth:`to_list` wrote."""
        return cls(Edit.from_dict(item) for item in data)

    def plus(self, *edits: Edit) -> Prescription:
        """This prescription with further edits; one that sets the same thing again replaces the earlier."""
        kept = [edit for edit in self if not any(_same_target(edit, new) for new in edits)]
        return Prescription((*kept, *edits))

    def extends(self, base: Prescription) -> bool:
        """Whether this is ``base`` with something put on top of it."""
        return len(base) < len(self) and tuple(self)[: len(base)] == tuple(base)

    def at_one_rate(self) -> Prescription:
        """The same with one learning rate where a new optimizer came with one and another was set after it.

        >>> rate, adam = Edit("set-learning-rate", "", {"to": 0.01}), Edit("substitute-optimizer", "", {"to": "Adam"})
        >>> Prescription([rate, adam]).at_one_rate().describe()
        'substitute-optimizer (to Adam, lr 0.01)'
        """
        rates = [edit for edit in self.of("set-learning-rate") if "to" in edit.values]
        if not rates or not self.of("substitute-optimizer"):
            return self
        rate = rates[-1].values["to"]
        return Prescription(
            Edit(edit.remedy, edit.where, {**edit.values, "lr": rate})
            if edit.remedy == "substitute-optimizer"
            else edit
            for edit in self
            if edit not in rates
        )

    def of(self, remedy: str) -> tuple[Edit, ...]:
        """The edits of one remedy."""
        return tuple(edit for edit in self if edit.remedy == remedy)

    def describe(self) -> str:
        """The prescription in one line."""
        return " + ".join(edit.describe() for edit in self) if self else "nothing changed"


def _same_target(old: Edit, new: Edit) -> bool:
    rates = ("set-learning-rate", "find-learning-rate")
    if old.remedy in rates and new.remedy in rates:
        return "factor" not in new.values
    return old.remedy == new.remedy and old.where == new.where
