"""New initial weights as a change to a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from akeso.remedies.edit import Edit, Prescription
from akeso.script.clues import Clues
from akeso.script.draft import Draft
from akeso.script.renaming import renamed
from akeso.script.rewrite_drawing import drop_drawing
from akeso.script.rewrite_model import trained

_LAYERS = ("Linear", "Conv1d", "Conv2d", "Conv3d")
#: All of which every one that a model has is drawn anew.
_WEIGHTED = (*_LAYERS, "Bilinear", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")


def reinitialise(draft: Draft, edit: Edit, clues: Clues, prescription: Prescription) -> str | None:
    """New weights for every layer, drawn before the optimizer is made."""
    nn = draft.alias("torch.nn")
    scheme, others = _schemes(edit, clues, prescription)
    others = {other: [renamed(name, draft.names) for name in names] for other, names in others.items()}
    drawn = clues.facts.get("drawn") or {}
    kinds = set(drawn["kinds"] if drawn else (*_LAYERS, *_tables(draft)))
    bare = {renamed(name, draft.names): spread for name, spread in (drawn.get("bare") or {}).items()}
    found = trained(draft, clues)
    whose = f".{found[1]}" if found is not None else ""
    for home in drawn.get("homes") or ():
        if whose.endswith(f".{home}"):
            # The optimizer has this part alone, and names are those in it.
            others = {
                other: [name.removeprefix(f"{home}.") for name in names] for other, names in others.items()
            }
            bare = {name.removeprefix(f"{home}."): spread for name, spread in bare.items()}
    small = edit.values.get("tables") == "small"
    lines = _drawing(
        nn, scheme, others, kinds, bool(drawn.get("bias_tables")), small, drawn.get("reset") or ()
    )
    alone = _bare(nn, bare)
    if found is None:
        how = (
            f"{_draw(nn, scheme)} for every layer, biases at zero"
            if kinds - _TABLES - _RECURRENT
            else " ".join([*lines[1:], *alone])
        )
        return f"draw the initial weights anew: {how}"
    drop_drawing(draft, _WEIGHTED if drawn else _LAYERS, everything=bool(drawn.get("everything")))
    statement, name = found
    each = f"name, layer in {name}.named_modules" if others else f"layer in {name}.modules"
    if lines:
        draft.add_before(statement, f"for {each}():", *lines)
    if alone:
        draft.add_before(statement, f"for name, weight in {name}.named_parameters():", *alone)
    return None


def _schemes(edit: Edit, clues: Clues, prescription: Prescription) -> tuple[str, Mapping[str, Sequence[str]]]:
    """The scheme that most layers are drawn by, and the names of those that are drawn by another."""
    known = dict((clues.facts.get("drawn") or {}).get("schemes") or {})
    if known:
        most = max(known, key=lambda scheme: len(known[scheme]))
        return most, {scheme: known[scheme] for scheme in known if scheme != most}
    scheme = str(edit.values.get("scheme", "auto"))
    news = [
        str(other.values["to"])
        for other in prescription.of("substitute-activation")
        if other.where != "output"
    ]
    olds = [str(site["activation"]) for site in clues.sites if site["role"] == "hidden"]
    after = (news or olds or ["ReLU"])[-1]
    if scheme == "auto":
        scheme = (
            "lecun" if after == "SELU" else "xavier" if after in ("Tanh", "Sigmoid", "Softsign") else "he"
        )
    return scheme, {}


def _draw(nn: str, scheme: str) -> str:
    return {
        "he": f'{nn}.init.kaiming_normal_(layer.weight, nonlinearity="relu")',
        "lecun": f'{nn}.init.kaiming_normal_(layer.weight, nonlinearity="linear")',
        "xavier": f"{nn}.init.xavier_uniform_(layer.weight)",
        "orthogonal": f"{nn}.init.orthogonal_(layer.weight)",
    }[scheme]


#: Layers whose method that draws their weights as torch does is not called as that of the others.
_RESETS = {"MultiheadAttention": "_reset_parameters"}
#: Recurrent layers by how many gates their weights hold, one below the other.
_GATES = {4: ("LSTM", "LSTMCell"), 3: ("GRU", "GRUCell"), 1: ("RNN", "RNNCell")}
_RECURRENT = frozenset(kind for kinds in _GATES.values() for kind in kinds)
_TABLES = frozenset({"Embedding", "EmbeddingBag"})


def _tables(draft: Draft) -> list[str]:
    """The tables and recurrent layers that a file makes."""
    return [kind for kind in ("Embedding", *sorted(_RECURRENT)) if list(draft.calls({kind}))]


def _drawing(
    nn: str,
    scheme: str,
    others: Mapping[str, Sequence[str]],
    kinds: set[str],
    bias_tables: bool,
    small_tables: bool,
    reset: Sequence[str],
) -> list[str]:
    """The body of a loop over layers that draws each kind there is."""
    blocks: list[tuple[str, list[str]]] = []
    layers = [f"{nn}.{kind}" for kind in sorted(kinds - _TABLES - _RECURRENT)]
    tables = [f"{nn}.{kind}" for kind in sorted(kinds & {"Embedding", "EmbeddingBag"})]
    if layers:
        draws = [
            part
            for other, names in others.items()
            for part in (f"if name in {tuple(names)!r}:", f"    {_draw(nn, other)}", "else:")
        ]
        depth = "    " if others else ""
        body = [*_chained(draws), f"{depth}{_draw(nn, scheme)}"]
        zero = ["if layer.bias is not None:", f"    {nn}.init.zeros_(layer.bias)"]
        blocks.append((_is_one_of(layers), body + zero))
    if tables:
        wide = " and layer.embedding_dim > 1" if bias_tables else ""  # tables of biases may start at zero
        test = f"{_is_one_of(tables)}{wide}"
        test += "" if small_tables else " and not 1e-3 < layer.weight.std() < 3"
        blocks.append((test, [f"{nn}.init.normal_(layer.weight, std=0.1)"]))
    for gates, alike in _GATES.items():
        if recurrent := [f"{nn}.{kind}" for kind in alike if kind in kinds]:
            blocks.append((_is_one_of(recurrent), _recurrent(nn, gates)))
    for kind in reset:
        blocks.append((_is_one_of([f"{nn}.{kind}"]), [f"layer.{_RESETS.get(kind, 'reset_parameters')}()"]))
    lines = []
    for number, (test, body) in enumerate(blocks):
        lines.append(f"    {'elif' if number else 'if'} {test}:")
        lines += [f"        {line}" for line in body]
    return lines


def _bare(nn: str, spreads: Mapping[str, float]) -> list[str]:
    """The body of a loop over parameters that draws those which no layer holds."""
    lines = []
    for number, spread in enumerate(dict.fromkeys(spreads.values())):
        names = tuple(name for name, wanted in spreads.items() if wanted == spread)
        lines += [
            f"    {'elif' if number else 'if'} name in {names!r}:",
            f"        {nn}.init.normal_(weight, std={spread:.4g})",
        ]
    return lines


def _chained(draws: list[str]) -> list[str]:
    """Branches one after another: all but the first begin with ``elif``."""
    lines: list[str] = []
    for line in draws:
        if line.startswith("if ") and lines:
            lines[-1] = f"el{line}"
        else:
            lines.append(line)
    return lines


def _is_one_of(kinds: Sequence[str]) -> str:
    several = ", ".join(kinds)
    return f"isinstance(layer, {several})" if len(kinds) == 1 else f"isinstance(layer, ({several}))"


def _recurrent(nn: str, gates: int) -> list[str]:
    """Every gate is drawn as a matrix of its own, and an LSTM begins with its forget gate open."""

    def each(draw: str) -> list[str]:
        if gates == 1:
            return [f"    {nn}.init.{draw}(weight)"]
        return [f"    for gate in weight.detach().chunk({gates}):", f"        {nn}.init.{draw}(gate)"]

    opened = ['    if "bias_ih" in part:', f"        {nn}.init.ones_(weight.detach().chunk({gates})[1])"]
    body = ["if weight.dim() < 2:", f"    {nn}.init.zeros_(weight)", *(opened if gates == 4 else [])]
    body += ['elif "weight_hh" in part:', *each("orthogonal_"), "else:", *each("xavier_uniform_")]
    return ["for part, weight in layer.named_parameters():", *(f"    {line}" for line in body)]
