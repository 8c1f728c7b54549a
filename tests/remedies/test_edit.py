"""Edits and prescriptions as data."""

from __future__ import annotations

import json

import pytest

from akeso.errors import BadInput
from akeso.remedies import Edit, Prescription


def test_an_edit_is_written_as_the_json_that_is_promised() -> None:
    edit = Edit("substitute-activation", "hidden", {"from": "Sigmoid", "to": "SELU"})
    expected = {"remedy": "substitute-activation", "from": "Sigmoid", "to": "SELU", "where": "hidden"}
    assert edit.to_dict() == expected
    assert Edit.from_dict(json.loads(json.dumps(expected))) == edit


def test_an_unknown_remedy_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r"'magic'.*clip-gradient"):
        Edit("magic")
    with pytest.raises(BadInput, match="needs a 'remedy'"):
        Edit.from_dict({"where": "hidden"})


def test_prescriptions_round_trip_and_can_be_keys() -> None:
    cure = Prescription(
        [Edit("set-batch-size", "", {"to": 64}), Edit("clip-gradient", "", {"kind": "norm", "limit": 1.0})]
    )
    again = Prescription.from_list(json.loads(json.dumps(cure.to_list())))
    assert again == cure
    assert {cure: 1}[again] == 1
    assert cure.of("clip-gradient")[0].values["limit"] == 1.0
    assert "set-batch-size (to 64)" in cure.describe()
    assert Prescription().describe() == "nothing changed"


def test_a_later_edit_of_the_same_thing_replaces_the_earlier() -> None:
    cure = Prescription(
        [Edit("set-learning-rate", "", {"to": 0.1}), Edit("reinitialise", "", {"scheme": "he"})]
    )
    changed = cure.plus(Edit("set-learning-rate", "", {"to": 0.01}))
    assert [edit.values for edit in changed.of("set-learning-rate")] == [{"to": 0.01}]
    assert changed.of("reinitialise")
    hidden = Edit("substitute-activation", "hidden", {"to": "SELU"})
    output = Edit("substitute-activation", "output", {"to": "none"})
    assert len(Prescription([hidden]).plus(output)) == 2
