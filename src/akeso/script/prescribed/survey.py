"""What the activations of a script's first training step are for: hidden, output, gate or recurrence.

The step is followed operation by operation. An activation whose result reaches an operation with weights is
hidden; one whose result reaches the loss is the output's; one that is multiplied with another value that was
computed from weights is a gate (an LSTM written by hand, squeeze and excitation, attention); one that is fed
by the same weights as an activation it depends on is recurrent. Only hidden ones may be exchanged freely.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from akeso.script.prescribed.functions import ACTIVATIONS, MULTIPLICATIONS, PRODUCTS, WEIGHTED
from akeso.script.prescribed.places import Place

#: The path of what is called outside any model.
OUTSIDE = "-"
_LIMIT = 20_000  # operations followed; a longer step is an unrolled recurrence of no further interest


class Key(NamedTuple):
    """Names an activation call: the module whose ``forward`` makes it, or "-", the function, the line."""

    path: str
    function: str
    place: Place | None


@dataclass(slots=True)
class Site:
    """One activation of a training step."""

    key: Key
    activation: str
    weights: frozenset[int] = frozenset()
    role: str = "other"
    called: Place | None = None  # where the key's place is the line that made the module
    made_directly: bool = False  # by that line itself, not by a library that it calls

    def to_dict(self) -> dict[str, Any]:
        """The site as plain JSON values."""
        place = self.key.place.to_dict() if self.key.place else None
        return {
            "path": self.key.path,
            "function": self.key.function,
            "place": place,
            "activation": self.activation,
            "role": self.role,
            "called": self.called.to_dict() if self.called else None,
            "made_directly": self.made_directly,
        }


@dataclass(slots=True)
class _Trace:
    """What is known of where a tensor comes from."""

    tensor: Tensor  # kept, so that its id stays its own
    sites: frozenset[int]
    weights: frozenset[int]
    above: frozenset[frozenset[int]]  # weights of the activations it depends on


class Survey:
    """Follows operations; :meth:`finish` with what the loss was given says what every activation is for."""

    def __init__(self) -> None:
        self.sites: list[Site] = []
        self.closed = False
        self._traces: dict[int, _Trace] = {}
        self._gates: set[int] = set()
        self._recurrent: set[int] = set()
        self._consumed: set[int] = set()
        self._operations = 0

    def follow(
        self,
        name: str,
        inputs: list[Tensor],
        outputs: list[Tensor],
        key: Key | None,
        called: Place | None = None,
        *,
        directly: bool = False,
    ) -> None:
        """Take in one operation; ``key`` names it where it is an activation, ``called`` is the line of its call.

        ``directly`` says that the line of the key made its module itself.
        """
        if self._operations >= _LIMIT or not outputs or not inputs:
            return
        self._operations += 1
        known = [trace for tensor in inputs if (trace := self._traces.get(id(tensor))) is not None]
        sites: frozenset[int] = frozenset().union(*(trace.sites for trace in known))
        weights: frozenset[int] = frozenset().union(*(trace.weights for trace in known))
        above: frozenset[frozenset[int]] = frozenset().union(*(trace.above for trace in known))
        if key is not None:
            index = len(self.sites)
            if weights and weights in above:
                self._recurrent |= {i for i, site in enumerate(self.sites) if site.weights == weights} | {
                    index
                }
            self.sites.append(Site(key, ACTIVATIONS[name], weights, called=called, made_directly=directly))
            sites, above = frozenset({index}), above | ({weights} if weights else frozenset())
        elif name in WEIGHTED:
            leaves = [tensor for tensor in inputs if tensor.is_leaf and tensor.requires_grad]
            if name in PRODUCTS and not leaves and sum(tensor.requires_grad for tensor in inputs) > 1:
                self._gates |= sites
            else:
                self._consumed |= sites
            sites, weights = frozenset(), frozenset(map(id, leaves)) or weights
        elif name in MULTIPLICATIONS:
            learnt = {id(tensor) for tensor in inputs if tensor.requires_grad and not tensor.is_leaf}
            if len(learnt) > 1:
                self._gates |= sites
            sites = frozenset(i for i in sites if self.sites[i].activation != "Exp")
        for output in outputs:
            self._traces[id(output)] = _Trace(output, sites, weights, above)

    def finish(self, outputs: list[Tensor]) -> None:
        """Give every activation its role; ``outputs`` is what the loss was given, where that was seen."""
        leaving: set[int] = set()
        for tensor in outputs:
            trace = self._traces.get(id(tensor))
            leaving |= trace.sites if trace is not None else frozenset()
        for index, site in enumerate(self.sites):
            if index in self._gates:
                site.role = "gate"
            elif index in self._recurrent:
                site.role = "recurrent"
            elif index in self._consumed and site.activation != "LogSoftmax":
                site.role = "hidden"
            elif index in leaving:
                site.role = "output"
        self._leave_out_rehearsals()
        self._traces.clear()
        self.closed = True

    def _leave_out_rehearsals(self) -> None:
        """Forget a pass that was made before the first step, as to make the layers: what it gave went nowhere."""
        outputs = {site.key for site in self.sites if site.role == "output"}
        nowhere = [i for i, site in enumerate(self.sites) if site.role == "other" and site.key in outputs]
        if not nowhere:
            return
        rehearsed, rest = self.sites[: nowhere[-1] + 1], self.sites[nowhere[-1] + 1 :]
        if {site.key for site in rehearsed} <= {site.key for site in rest}:
            self.sites = rest

    def hidden_lines(self) -> set[tuple[str, Place]]:
        """Function and line of hidden activations outside any model, where the line has no other role."""
        roles: dict[tuple[str, Place], set[str]] = {}
        for site in self.sites:
            if site.key.path == OUTSIDE and site.key.place is not None:
                roles.setdefault((site.key.function, site.key.place), set()).add(site.role)
        return {line for line, found in roles.items() if found == {"hidden"}}

    def to_list(self) -> list[dict[str, Any]]:
        """Every site as plain JSON values."""
        return [site.to_dict() for site in self.sites]


def hidden_lines(sites: list[dict[str, Any]]) -> set[tuple[str, Place]]:
    """:meth:`Survey.hidden_lines` of a survey that was written down."""
    survey = Survey()
    for site in sites:
        place = Place(**site["place"]) if site["place"] else None
        key = Key(site["path"], site["function"], place)
        survey.sites.append(Site(key, site["activation"], role=site["role"]))
    return survey.hidden_lines()
