"""Changes to a script's model and data: activations, norms, initial weights, inputs."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from akeso.remedies.edit import EVERYTHING, Edit, Prescription
from akeso.script.clues import Clues
from akeso.script.draft import Draft, in_order, name_of
from akeso.script.rewrite_classes import chosen_elsewhere

_FUNCTION = {
    "ReLU": "relu", "SELU": "selu", "LeakyReLU": "leaky_relu", "ELU": "elu", "GELU": "gelu", "SiLU": "silu",
    "Tanh": "tanh", "Sigmoid": "sigmoid", "CELU": "celu", "Mish": "mish", "Softplus": "softplus",
    "Softmax": "softmax", "LogSoftmax": "log_softmax",
}  # fmt: skip
_OVER_CLASSES = frozenset({"Softmax", "LogSoftmax"})

#: Losses of scores, and those of probabilities that are the same otherwise.
_OF_PROBABILITIES = {
    "BCEWithLogitsLoss": "BCELoss", "binary_cross_entropy_with_logits": "binary_cross_entropy",
}  # fmt: skip
_RECURRENT = frozenset({"RNN", "LSTM", "GRU"})
_AVERAGING = frozenset({"BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"})
#: What says that a script trains with mixed precision.
_MIXED = ("autocast", "precision", "GradScaler", "fp16", "bf16")
_SCORES = (
    "the model gives scores now: apply torch.sigmoid where the script takes them for probabilities, and hold them "
    "against 0 where it held them against 0.5"
)


def substitute_activation(draft: Draft, edit: Edit, clues: Clues, prescription: Prescription) -> str | None:
    """Another activation at the lines where the old one is made or called."""
    new, where = str(edit.values["to"]), edit.where or "hidden"
    if edit.values.get("from") == EVERYTHING and not clues.facts.get("bypassed"):
        through = "" if new in ("none", "Identity") else f", through {new}"
        return f"let the model return what its last layer gives{through}, without what comes after it"
    role = "output" if where == "output" else "hidden"
    inside = edit.values.get("in") == "model"  # nobody wants what it gives
    scores = (
        role == "output"
        and new in ("none", "Identity")
        and edit.values.get("from") == "Sigmoid"
        and not inside
    )
    if scores and not prescription.of("weight-classes") and _loss_of_probabilities(draft):
        return None
    done, exchanged = role == "hidden" and _in_recurrent(draft, new), list[ast.Call]()
    alike: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for site in clues.sites:
        alike.setdefault((int(site["place"]["line"]), site["function"]), []).append(site)
    for site in clues.sites:
        if site["role"] != role or (
            edit.values.get("from") not in (None, site["activation"]) and role == "hidden"
        ):
            continue
        line, names = (
            int(site["place"]["line"]),
            {site["activation"], site["function"].rstrip("_"), site["function"]},
        )
        named = in_order(draft.calls(names, line))
        directly = bool(site.get("made_directly"))
        calls = named or chosen_elsewhere(draft, line, directly=directly)
        makes = directly and not named
        together = alike[line, site["function"]]
        if len({other["role"] for other in together}) > 1:
            if not len({other["path"] for other in together}) == len(together) == len(calls):
                # One module serves layers and output: only this call of it is meant.
                done = _at_the_call(draft, site, new) or done
                continue
            calls = calls[together.index(site) :][:1]
        for call in calls:
            if call not in exchanged:  # a line in a loop is a site for each time that it ran
                exchanged.append(call)
                done = _exchanged(draft, call, site["activation"], new, makes=makes) or done
    if done:
        return _SCORES if scores else None
    old = str(edit.values.get("from") or "the activation")
    if new in ("none", "Identity"):
        return f"take {old} off the model's output: what comes after it wants raw scores"
    if role == "output" and old == "none":
        return f"put {new} on the model's output"
    if old == new:
        return f"apply {new} once to the model's output, not twice"
    return f"put {new} in the place of {old} ({where})"


def _in_recurrent(draft: Draft, new: str) -> bool:
    """Tell plain recurrent layers which of the two functions they know to use, where they are made with the other."""
    own = {node.name for node in ast.walk(draft.tree) if isinstance(node, ast.ClassDef)}
    done = False
    for call in draft.calls({"RNN", "RNNCell"} - own) if new in ("ReLU", "Tanh") else ():
        given = next((keyword.value for keyword in call.keywords if keyword.arg == "nonlinearity"), None)
        used = given.value if isinstance(given, ast.Constant) else "tanh" if given is None else None
        if used in ("relu", "tanh") and used != new.lower():
            draft.set_argument(call, "nonlinearity", f'"{new.lower()}"')
            done = True
    return done


def _loss_of_probabilities(draft: Draft) -> bool:
    """Take the loss that wants probabilities, where the script makes or calls the one with logits.

    What else it does with the model's answers, such as holding them against 0.5, stays right then. Under mixed
    precision torch refuses that loss, and it knows no weight for a class.
    """
    calls = list(draft.calls(set(_OF_PROBABILITIES)))
    weighted = any(keyword.arg == "pos_weight" for call in calls for keyword in call.keywords)
    if not calls or weighted or mixed_precision(draft):
        return False
    for call in calls:
        owner = f"{draft.text(call.func.value)}." if isinstance(call.func, ast.Attribute) else ""
        modules = "torch.nn.functional" if name_of(call)[:1].islower() else "torch.nn"
        draft.replace(call.func, f"{owner or draft.alias(modules) + '.'}{_OF_PROBABILITIES[name_of(call)]}")
    return True


def mixed_precision(draft: Draft) -> bool:
    """Whether a file speaks of mixed precision."""
    return any(word in draft.source for word in _MIXED)


def _at_the_call(draft: Draft, site: Mapping[str, Any], new: str) -> bool:
    """Exchange one call of a module that has others, where its line says which it is."""
    called, name = site.get("called"), str(site["path"]).rpartition(".")[2]
    if called is None or called["file"] != site["place"]["file"]:
        return False
    found = list(draft.calls({name}, int(called["line"])))
    return len(found) == 1 and _exchanged(draft, found[0], site["activation"], new)


def _exchanged(draft: Draft, call: ast.Call, old: str, new: str, *, makes: bool = False) -> bool:
    if old != new and {old, new} <= _OVER_CLASSES:  # over the same axis, however that is given
        name = new if name_of(call) == old else _FUNCTION[new]
        home = draft.alias("torch.nn" if name == new else "torch.nn.functional")
        home = draft.text(call.func.value) if isinstance(call.func, ast.Attribute) else home
        draft.replace(call.func, f"{home}.{name}")
        return True
    nothing, axis = new in ("none", "Identity"), "dim=-1" if new in _OVER_CLASSES else ""
    if makes or name_of(call) == old:  # a module is made
        prefix = f"{draft.alias('torch.nn')}."
        draft.replace(call, f"{prefix}Identity()" if nothing else f"{prefix}{new}({axis})")
        return True
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    modules = {draft.alias("torch"), draft.alias("torch.nn.functional"), "torch", "F", "nn.functional"}
    as_method = owner is not None and not call.args and draft.text(owner) not in modules
    entering = owner if as_method else call.args[0] if call.args else None
    if entering is None:
        return False
    if nothing:
        draft.replace(call, draft.text(entering))
        return True
    if new not in _FUNCTION:
        return False
    function = f"{draft.alias('torch.nn.functional')}.{_FUNCTION[new]}"
    others = f", {axis}" if axis else ""
    if as_method:
        draft.make_argument(entering, call, function, others)
    else:
        draft.replace(call.func, function)
        draft.keep_first(call, others)
    return True


def trained(draft: Draft, clues: Clues) -> tuple[ast.stmt, str] | None:
    """The statement that makes the optimizer, and the name of the model whose parameters it gets."""
    for line in (
        clues.lines("optimizer", clues.places["optimizer"][0]["file"])
        if clues.places.get("optimizer")
        else ()
    ):
        for call in draft.calls({"parameters"}, line):
            statement = draft.statement(call)
            if statement is not None and isinstance(call.func, ast.Attribute):
                return statement, draft.text(call.func.value)
    return None


def set_dropout(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """Another share dropped out."""
    calls = list(draft.calls({"Dropout", "Dropout1d", "Dropout2d", "Dropout3d"}))
    for call in calls:
        draft.set_argument(call, "p", f"{float(edit.values['to']):g}", 0)
    return None if calls else f"drop out {float(edit.values['to']):g} at most"


def set_averaging(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """Another momentum where batch norms are given one that is too small, whatever it is made of."""
    to = f"{float(edit.values['to']):g}"
    given = [
        call
        for call in draft.calls(_AVERAGING)
        if len(call.args) > 2 or any(one.arg == "momentum" for one in call.keywords)
    ]
    for call in given:
        draft.set_argument(call, "momentum", to, 2)
    return None if given else f"give batch normalisation a momentum of {to}"


def turn_recurrence(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """Samples first, or not any more, where the one recurrent layer of that name is made."""
    name = edit.where.rpartition(".")[2]
    calls = [call for call in draft.calls(_RECURRENT) if name in _set_there(draft, call)]
    given = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == "batch_first"]
    if (
        len(calls) != 1
        or not all(isinstance(value, ast.Constant) for value in given)
        or len(calls[0].args) > 4
    ):
        return f"make {edit.where} with batch_first=True where samples come first, and without it where time does"
    first = any(isinstance(value, ast.Constant) and value.value is True for value in given)
    draft.set_argument(calls[0], "batch_first", str(not first))
    return None


def _set_there(draft: Draft, call: ast.Call) -> set[str]:
    """What is set to something that this call makes."""
    return {name_of(target) for target in getattr(draft.statement(call), "targets", ())}


def embed_inputs(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """In words: what goes into the model has to become whole numbers too."""
    return (
        "the inputs are numbers of names, not quantities: replace the first nn.Linear(n, width) by "
        f"nn.EmbeddingBag({int(edit.values['names']) + 1}, width), give it x.long() and "
        "multiply what comes out by n ** 0.5"
    )


def set_output_bias(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """In words: the prior is in the data."""
    return (
        "start the output layer's bias at the class prior: "
        "the logarithm of each class's share of the training targets"
    )
