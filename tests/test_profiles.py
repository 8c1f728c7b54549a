"""Profiles are data: they load, say what is wrong with them, and come back as they were written."""

from __future__ import annotations

import dataclasses

import pytest

from akeso.detectors import DETECTORS
from akeso.errors import BadInput
from akeso.profiles import BUILT_IN, dump_profile, load_profile


@pytest.mark.parametrize("name", BUILT_IN)
def test_round_trip(name, tmp_path):
    profile = load_profile(name)
    path = tmp_path / "copy.toml"
    path.write_text(dump_profile(profile), "utf-8")
    assert load_profile(path) == profile
    assert load_profile(str(path)) == profile
    assert load_profile(profile) is profile


def test_every_detector_is_in_exactly_one_profile():
    named = [detector.name for name in BUILT_IN for detector in load_profile(name).detectors]
    assert sorted(named) == sorted(DETECTORS)


@pytest.mark.parametrize("name", BUILT_IN)
def test_files_hold_the_values_that_detectors_have_by_default(name):
    for detector in load_profile(name).detectors:
        assert detector == type(detector)(), detector.name


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_threshold_is_explained_in_the_file(name):
    from importlib.resources import files

    text = (files("akeso.profiles") / f"{name}.toml").read_text("utf-8")
    thresholds = [
        line for line in text.splitlines() if " = " in line and not line.startswith(("#", "name", "desc"))
    ]
    assert thresholds
    assert all("  # " in line and "None" not in line for line in thresholds)


def test_papers_defaults_are_the_published_ones():
    rules = {
        d.name: d for d in (*load_profile("autotrainer").detectors, *load_profile("bttackler").detectors)
    }
    assert dataclasses.asdict(rules["autotrainer-vanishing-gradient"]) == {
        "every": 3, "good_enough": 0.7, "beta1": 1e-3, "beta2": 1e-4,
    }  # fmt: skip
    assert rules["autotrainer-exploding-gradient"].beta3 == 70
    assert rules["autotrainer-dying-relu"].gamma == 0.7
    assert (rules["autotrainer-oscillating-loss"].zeta, rules["autotrainer-oscillating-loss"].eta) == (
        0.03,
        0.2,
    )
    assert rules["autotrainer-slow-convergence"].delta == 0.01
    assert rules["autotrainer-abnormal-data"].omega == 10
    assert (rules["bttackler-agv"].bound, rules["bttackler-eag"].amplification) == (10, 100)
    assert (rules["bttackler-erg"].amplification, rules["bttackler-erg"].magnitude) == (1e-3, 1e-5)
    assert (rules["bttackler-plc"].change, rules["bttackler-ulc"].fluctuation) == (1e-3, 0.01)


def test_a_file_may_extend_a_profile_and_leave_detectors_out(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'extends = "akeso"\n[detectors]\nno-more-gain = false\n[detectors.dying-relu]\nblocked = 1\n', "utf-8"
    )
    mine, theirs = load_profile(path), load_profile("akeso")
    assert mine.name == "mine"
    assert len(mine.detectors) == len(theirs.detectors) - 1
    relu = next(d for d in mine.detectors if d.name == "dying-relu")
    assert relu.blocked == 1.0
    assert relu.dead == next(d for d in theirs.detectors if d.name == "dying-relu").dead


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[detectors.dying-rellu]\n", "did you mean 'dying-relu'"),
        ("[detectors.dying-relu]\nblokced = 0.5\n", "did you mean 'blocked'"),
        ('[detectors.dying-relu]\nblocked = "much"\n', "'much' is a str, but a float"),
        ("[detectors.dying-relu]\nmin_steps = true\n", "True is a bool, but a int"),
        ("[detectors.dying-relu]\nmin_steps = 2.5\n", "2.5 is a float, but a int"),
        ("[detectors]\ndying-relu = 3\n", r"write a section \[detectors.dying-relu\] or false"),
        ("thresholds = 3\n", "unknown entry 'thresholds'"),
        ('ranking = "loudest"\n[detectors.dying-relu]\n', "'causes' or 'exposure'"),
        ('extends = "mine"\n', "it may extend one of"),
        ("", "no detectors"),
        ("[detectors\n", "not valid TOML"),
    ],
)
def test_mistakes_are_explained(text, message, tmp_path):
    path = tmp_path / "wrong.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(BadInput, match=message):
        load_profile(path)


def test_a_missing_file_names_the_profiles_there_are():
    with pytest.raises(BadInput, match="akeso, autotrainer, bttackler"):
        load_profile("no/such/profile.toml")
