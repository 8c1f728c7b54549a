"""Attempts on scripts as processes of their own: they pause and go on, crash, hang, and leave files alone."""

from __future__ import annotations

import runpy
import textwrap
from importlib.util import find_spec

import pytest
import torch
from safetensors.torch import load_file

import akeso
from akeso.errors import BadInput, Refused
from akeso.remedies.edit import Edit, Prescription
from akeso.script.prescribed import process
from akeso.script.program import Program as Script
from akeso.treatment.script_program import ScriptProgram
from akeso.treatment.telling import _headline
from tests.script.commands import READY
from tests.script.test_prescribed_loop import HELD_OUT_FIRST

TRAIN = """
import signal
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
x = torch.randn(64, 2)
y = (x[:, 0] > 0).long()
model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(6):
    for i in range(0, 64, 16):
        optimizer.zero_grad()
        F.cross_entropy(model(x[i:i + 16]), y[i:i + 16]).backward()
        optimizer.step()
    with torch.no_grad():
        accuracy = (model(x).argmax(1) == y).float().mean().item()
    print(f"epoch {epoch} val_acc: {accuracy:.4f}")
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Makes a program of a source; what is left running is ended."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(process, "subprocess", READY.serves(process))
    made = []

    def make(source, **options):
        (tmp_path / "train.py").write_text(textwrap.dedent(source))
        made.append(ScriptProgram(Script("train.py"), tmp_path / "run", **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def rate(value):
    return Prescription([Edit("set-learning-rate", "", {"to": value})])


def test_what_the_untreated_run_trained_with_is_known_to_its_attempts(program, tmp_path):
    one = program(f"{HELD_OUT_FIRST}\nprint('sizes', held_out.batch_size, loader.batch_size)\n")
    one.attempt(Prescription())
    smaller = Edit("set-batch-size", "", {"to": 4})
    assert one.refuses(smaller) is None
    assert one.refuses(Edit("set-batch-size", "", {"to": 8}))
    cure = Prescription([smaller])
    assert one.stretch(cure) == 2.0
    made = one.attempt(cure)
    assert (made.whole, made.steps, made.planned_steps) == (True, 16, 16)
    assert "sizes 64 4" in (tmp_path / "run" / "attempt-01" / "output.log").read_text()


def test_a_figure_of_its_own_is_judged_by_where_it_moves_with_the_loss(program):
    evaluation = """    with torch.no_grad():
        loss = F.cross_entropy(model(x), y).item()
"""
    source = (
        TRAIN.split("    with torch")[0]
        + evaluation
        + "    print(f'epoch {epoch} val zeal: {50 - loss:.5f}')\n"
    )
    first = program(source).attempt(Prescription())
    assert (first.metric_name, first.higher_is_better) == ("val_zeal", True)
    assert not first.notes
    by_hand = "(lambda a, b: ((a.exp() - F.one_hot(b)) ** 2).mean())("
    alone = TRAIN.replace("val_acc", "val_zeal").replace("F.cross_entropy(", by_hand)
    other = program(alone).attempt(Prescription())
    assert other.metric_name.startswith("train_")
    assert any("prints val zeal" in note and "--metric" in note for note in other.notes)


def test_attempts_pause_go_on_crash_and_hang(program, tmp_path):
    source = TRAIN.replace("for epoch", "rate = optimizer.param_groups[0]['lr']\nfor epoch").replace(
        "    with torch.no_grad",
        "    assert rate != 1, 'far too fast'\n    while rate > 1: signal.pause()\n    with torch.no_grad",
    )
    one = program(source)
    untreated = one.attempt(Prescription())
    assert untreated.whole
    assert (untreated.steps, untreated.spent, one.planned_steps) == (24, 24, 24)
    assert untreated.metric_name == "val_accuracy"

    part = one.attempt(rate(0.05), max_steps=9)
    assert (part.steps, part.whole) == (8, False)  # whole epochs: the script evaluates there
    assert part.metric is not None
    rest = one.attempt(rate(0.05))
    assert rest.whole
    assert (rest.steps, rest.spent) == (24, 16)
    (tmp_path / "fixed.py").write_text(TRAIN.replace("lr=0.1", "lr=0.05"))
    theirs = runpy.run_path(str(tmp_path / "fixed.py"))["model"].state_dict()
    ours = load_file(rest.weights)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)

    crashed = one.attempt(rate(1.0))
    assert "far too fast" in crashed.failed
    assert not crashed.whole
    one.timeout = 8.0
    late = one.attempt(rate(2.0))
    assert "time limit" in late.failed
    assert not late.whole


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("name = input('who? ')\n" + TRAIN, "asks for input"),
        (
            "import json\ndata = json.load(open('data.json'))\n"
            + TRAIN
            + "\njson.dump(data, open('data.json', 'w'))",
            "writes over its own data",
        ),
        ("print('nothing to train')", "trains nothing"),
    ],
)
def test_a_script_that_cannot_be_treated_is_refused_with_the_reason(program, tmp_path, source, words):
    (tmp_path / "data.json").write_text("[1, 2, 3]")
    with pytest.raises(Refused, match=words):
        program(source).attempt(Prescription())
    assert (tmp_path / "data.json").read_text() == "[1, 2, 3]"


def test_a_script_that_fails_by_itself_is_said_to(program):
    with pytest.raises(BadInput, match="fails by itself"):
        program("raise SystemExit('no data')").attempt(Prescription())


@pytest.mark.parametrize(
    ("spoilt", "problem"),
    [
        ("[nn.init.normal_(p, std=1e38) for p in model.parameters()]", "poor-initialisation"),
        ("x[3] = float('nan')", "abnormal-data"),
    ],
)
def test_a_script_that_fails_on_the_first_answers_of_its_model_is_sick_and_not_wrong(
    program, spoilt, problem
):
    source = TRAIN.replace("optimizer =", f"{spoilt}\noptimizer =")
    one = program(source.replace("for epoch", "assert model(x).isfinite().all()\nfor epoch"))
    made = one.attempt(Prescription())
    assert made.failed
    assert [found.problem for found in made.diagnoses] == [problem]


def test_attempts_leave_the_users_files_as_the_untreated_run_left_them(program, tmp_path):
    source = (
        "import os\nresumed = os.path.exists('model.pt')\n"
        + TRAIN
        + "\nprint('quality=0.75')\ntorch.save(model.state_dict(), 'model.pt')\n"
        + "open('log.txt', 'a').write(f'resumed {resumed}\\n')\n"
    )
    (tmp_path / "log.txt").write_text("before\n")
    one = program(source, metric=r"quality=([\d.]+)", higher_is_better=True)
    untreated = one.attempt(Prescription())
    assert (untreated.metric, untreated.metric_name) == (0.75, "metric")  # the script's own figure decides
    kept = (tmp_path / "model.pt").read_bytes()
    assert (tmp_path / "log.txt").read_text() == "before\nresumed False\n"
    reseeded = Prescription([Edit("reseed", "", {"seed": 7})])
    attempt = one.attempt(reseeded)
    assert attempt.whole
    assert attempt.seed == 7
    assert not torch.equal(load_file(untreated.weights)["0.weight"], load_file(attempt.weights)["0.weight"])
    assert (tmp_path / "model.pt").read_bytes() == kept
    assert (tmp_path / "log.txt").read_text() == "before\nresumed False\n"
    written = sorted(path.name for path in (tmp_path / "run" / "attempt-01" / "files").iterdir())
    assert [name.split("-", 1)[1] for name in written] == ["model.pt", "log.txt"]
    log = (tmp_path / "run" / "attempt-01" / "files" / written[1]).read_text()
    assert log.endswith("resumed False\n")  # it did not go on from the untreated run's model


def test_a_training_that_goes_past_its_planned_end_was_misread(program):
    loop = "    for i in range(0, 64, 16):\n"
    source = TRAIN.replace(loop, "    def step(i):\n") + ""
    source = source.replace(
        "    with torch.no_grad():", "    list(map(step, range(0, 64, 16)))\n    with torch.no_grad():"
    )
    made = program(source)
    early = made.attempt(Prescription(), max_steps=9)
    assert (early.steps, early.planned_steps, made.planned_steps) == (9, None, None)
    assert made.attempt(rate(0.05)).steps == 24
    assert made.planned_steps == 24


def test_targets_in_standard_units_are_judged_in_those_of_the_script(program):
    source = TRAIN.replace("y = (x[:, 0] > 0).long()", "y = 1000 + 300 * x[:, :1]")
    source = source.replace("nn.Linear(8, 2))", "nn.Linear(8, 1))").replace("F.cross_entropy", "F.mse_loss")
    source = source.replace("(model(x).argmax(1) == y).float().mean()", "(model(x) - y).pow(2).mean()")
    attempt = program(source).attempt(Prescription([Edit("standardise-targets")]))
    assert not attempt.refused
    constant = attempt.history.series("baseline_loss").finite().values
    assert all(30_000 < value < 300_000 for value in constant)
    assert "slow-convergence" not in attempt.problems


def test_gradients_in_standard_units_do_not_vanish_beside_a_loss_in_those_of_the_script(program):
    source = TRAIN.replace("y = (x[:, 0] > 0).long()", "y = 300_000 + 100_000 * x[:, :1]")
    layers = "nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))"
    source = source.replace("nn.Linear(8, 2))", layers).replace("F.cross_entropy", "F.mse_loss")
    source = source.replace("(model(x).argmax(1) == y).float().mean()", "(model(x) - y).pow(2).mean()")
    source = source.replace("range(6)", "range(10)").replace("lr=0.1", "lr=0.001")
    attempt = program(source).attempt(Prescription([Edit("standardise-targets")]))
    assert not attempt.refused
    assert "vanishing-gradient" not in attempt.problems


KERAS = """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras, numpy
keras.utils.set_random_seed(0)
x = numpy.random.default_rng(0).normal(size=(256, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(2, "softmax")])
model.compile(keras.optimizers.Adam(50.0), loss="sparse_categorical_crossentropy")
model.fit(x, x[:, 0] > 0, batch_size=16, epochs=4, validation_split=0.25, verbose=0)
"""


@pytest.mark.skipif(find_spec("keras") is None, reason="Keras is not installed")
def test_what_keras_trains_is_judged_and_left_as_it_is(program):
    one = program(KERAS)
    outcome = akeso.treat(one)
    assert outcome.status == "failed"
    assert outcome.diagnoses
    assert [tried.attempt.steps for tried in outcome.attempts] == [48]
    assert one.refuses(Edit("set-learning-rate", "", {"to": 0.1})) in outcome.notes
    assert any(note.startswith("worth a try by hand: set-learning-rate") for note in outcome.notes)
    assert _headline(outcome) == "sick, but nothing could be changed"
