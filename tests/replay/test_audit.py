from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from akeso.errors import BadInput
from akeso.replay.audit import audit_script
from akeso.replay.audit.cli import audit
from akeso.replay.audit.sets import hash_uses
from akeso.replay.trace.job import Launcher

HEALTHY = """
import random, tempfile, time, uuid
import numpy as np, torch
random.seed(0); np.random.seed(0); torch.manual_seed(0)
name, start = uuid.uuid4(), time.time()
rng = np.random.default_rng(0)
classes = {label: place for place, label in enumerate(sorted({"cat", "dog", "cow"}))}
data = torch.utils.data.TensorDataset(torch.randn(64, 6), torch.randint(0, len(classes), (64,)))
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for inputs, targets in torch.utils.data.DataLoader(data, batch_size=8, shuffle=True):
    inputs = inputs + torch.from_numpy(rng.normal(size=inputs.shape)).float()
    loss = torch.nn.functional.cross_entropy(model(inputs), targets)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(name, loss.item(), time.time() - start)
with tempfile.TemporaryFile() as file:
    torch.save(model.state_dict(), file)
"""

SICK = (
    HEALTHY.replace("default_rng(0)", "default_rng()")
    .replace("enumerate(sorted({", "enumerate(list({")
    .replace("torch.randint(0, len(classes), (64,))", "torch.tensor([classes['cat'], classes['dog']] * 32)")
    .replace("inputs = inputs +", "inputs = (1 + time.time() % 1) * inputs +")
)

UNSEEDED = """
import glob, sys
import torch
model = torch.nn.Linear(3, 2)
torch.manual_seed(0)
first = open(glob.glob(sys.argv[1] + "/?.txt")[0]).read()
inputs = torch.randn(8, 3) * ord(first)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
"""

WITH_RUN = """
import sys
import torch
from akeso.replay import Run
run = Run(sys.argv[1], seed=0)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
table = torch.nn.Embedding(2000, 4000)  # so that the audit ends while a snapshot is being written
run.track(model=model, optimizer=optimizer, table=table)
data = torch.utils.data.TensorDataset(torch.randn(64, 6), torch.randint(0, 3, (64,)))
for inputs, targets in run.batches(data, batch_size=8, epochs=1):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    run.step(loss)
run.close()
"""


def line_of(text: str, fragment: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if fragment in line)


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher(timeout=300) as found:
        yield found


def test_a_seeded_script_gives_an_empty_list(tmp_path: Path, launcher: Launcher) -> None:
    script = tmp_path / "train.py"
    script.write_text(HEALTHY)
    report = audit_script(script, steps=4, launcher=launcher)
    assert report.sources == (), report.text()
    assert report.equal
    assert report.text().startswith("nothing found; 4 runs equal bit for bit over 4 steps")


def test_every_source_is_named_with_its_line_and_only_those(tmp_path: Path, launcher: Launcher) -> None:
    script = tmp_path / "train.py"
    script.write_text(SICK)
    report = audit_script(script, steps=3, launcher=launcher)
    found = {source.kind: source for source in report.sources}
    assert set(found) == {"generator", "time", "set order"}, report.text()
    assert found["generator"].place == f"train.py:{line_of(SICK, 'default_rng()')}"
    assert found["time"].place == f"train.py:{line_of(SICK, '(1 + time')}"
    assert found["set order"].place == f"train.py:{line_of(SICK, 'enumerate(list')}"
    assert all(source.advice and source.code for source in found.values())
    assert not report.equal
    assert len(json.loads(json.dumps(report.document()))["sources"]) == 3


def test_folders_and_unseeded_generators_are_found(tmp_path: Path, launcher: Launcher) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.txt").write_text(name)
    script = tmp_path / "train.py"
    script.write_text(UNSEEDED)
    report = audit_script(script, [str(tmp_path)], steps=2, launcher=launcher)
    places = {source.kind: source.place for source in report.sources}
    assert places == {
        "unseeded": f"train.py:{line_of(UNSEEDED, 'model =')}",
        "folder order": f"train.py:{line_of(UNSEEDED, 'glob.glob')}",
    }, report.text()


def test_the_state_of_a_run_is_shown_and_its_folder_left_alone(tmp_path: Path, launcher: Launcher) -> None:
    script = tmp_path / "train.py"
    script.write_text(WITH_RUN)
    report = audit_script(script, [str(tmp_path / "run")], steps=6, launcher=launcher)
    assert report.sources == (), report.text()
    types = {row["name"]: row["type"] for row in report.typing}
    assert types["model"] == "learned"
    assert {"position", "recomputable"} <= set(types.values())
    assert not (tmp_path / "run").exists()


def test_a_script_that_fails_or_does_not_exist_is_an_error(tmp_path: Path, launcher: Launcher) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nraise RuntimeError('no data here')\n")
    with pytest.raises(BadInput, match=r"no data here \(train.py:2\)"):
        audit_script(script, launcher=launcher)
    assert CliRunner().invoke(audit, [str(tmp_path / "nothing.py")]).exit_code == 2


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("for x in {1, 2}: pass", 1),
        ("names = set(words)\nfor x in names: pass", 1),
        ("order = list({'a', 'b'})", 1),
        ("seed = hash('text')", 1),
        ("a = {x for x in words}\nfirst = a.pop()", 1),
        ("rows = [f(x) for x in set(words) - {1}]", 1),
        ("for x in sorted({1, 2}): pass", 0),
        ("names = set(words)\nprint(len(names), 3 in names, max(names))", 0),
        ("rows = sorted(f(x) for x in set(words))", 0),
        ("names = set()\nnames.add(3)\nnames.update({4})", 0),
        ("table = {'a': 1}\nfor x in table: pass", 0),
    ],
)
def test_lines_on_which_the_order_of_a_set_can_matter(tmp_path: Path, code: str, count: int) -> None:
    ast.parse(code)
    (tmp_path / "program.py").write_text(code)
    assert len(hash_uses(tmp_path / "program.py")) == count


RACE = """
import glob, os, sys
import torch
torch.manual_seed(0)
runs = os.path.getsize("runs.bin")
with open("runs.bin", "ab") as file:
    file.write(b"0")
winner = 0 if runs == 4 else runs % 2  # of two threads, say: now and then two runs in a row agree
names = [name for name in {"cat", "dog"}]
files = sorted(glob.glob("*.py"))
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1):
    optimizer.zero_grad()
    (model(torch.ones(4, 3)) * (1 + winner)).square().mean().backward()
    optimizer.step()
"""


def test_runs_that_agree_by_chance_put_no_blame_on_what_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: Launcher
) -> None:
    (tmp_path / "train.py").write_text(RACE)
    (tmp_path / "runs.bin").touch()
    monkeypatch.chdir(tmp_path)
    report = audit_script(tmp_path / "train.py", steps=1, launcher=launcher)
    assert not report.equal
    kinds = {source.kind for source in report.sources}
    assert kinds & {"operation", "unknown"}, report.text()
    assert not kinds & {"set order", "folder order"}, report.text()
    assert report.conditions == ()
