"""Search profiles: what can be changed in them, and errors that say so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from akeso.errors import BadInput
from akeso.search import DiagnosisPruner, search_profile
from akeso.search.profiles import AKESO


def test_an_option_that_is_not_there_is_answered_with_those_that_are() -> None:
    for wrong in (lambda: DiagnosisPruner(false_stop=0.1), lambda: search_profile("akeso", false_stop=0.1)):
        with pytest.raises(BadInput, match=r"no option 'false_stop'; it has .*confidence, false_stops, top"):
            wrong()


@pytest.mark.parametrize(
    "name", ["confidence", "top", "false_stops", "patience", "sliver", "contenders", "late"]
)
@pytest.mark.parametrize("value", ["high", True, float("nan"), 1.5, [0.5]])
def test_shares_are_numbers_between_0_and_1(name: str, value: object) -> None:
    with pytest.raises(
        BadInput, match=f"{name} of a search profile must be a number between 0 and 1, but got"
    ):
        search_profile("akeso", **{name: value})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"warm_up": "3"}, "whole number of at least 2, but got '3'"),
        ({"warm_up": 1}, "whole number of at least 2, but got 1"),
        ({"warm_up": 2.5}, "whole number of at least 2, but got 2.5"),
        ({"confidence": None}, "confidence of a search profile must be a number"),
        ({"stops": "dying-relu"}, "stops of a search profile is a set of problems"),
        ({"finishes": [1]}, "finishes of a search profile is a set of problems"),
        ({"at_steps": None}, "at_steps of a search profile is a set of problems"),
        ({"detectors": 3}, "detectors of a search profile is a name"),
        (
            {"stops": {"dying_relu"}},
            "stops of a search profile names 'dying_relu'.* did you mean 'dying-relu'",
        ),
        ({"finishes": {"xyz"}}, "finishes of a search profile names 'xyz'.*`akeso list` has all there are"),
    ],
)
def test_other_types_are_clear_errors(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        search_profile("akeso", **changes)


def test_what_can_be_meant_is_taken() -> None:
    changed = search_profile(
        AKESO, stops=["dying-relu"], false_stops=None, top=np.float64(0.5), warm_up=np.int64(3), late=0
    )
    assert changed.stops == frozenset({"dying-relu"})
    assert changed.digest == search_profile(changed, stops={"dying-relu"}).digest
    assert search_profile("akeso") is AKESO
