"""``akeso treat`` from the command line, on scripts that know nothing of akeso."""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.script.commands import akeso_at_once, environment

SICK = """
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
x = torch.randn(400, 2)
y = (x.norm(dim=1) > 1.2).long()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 8)] + [nn.Linear(8, 8) for _ in range(8)])
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        for layer in self.layers:
            x = torch.sigmoid(layer(x))
        return self.out(x)

model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(30):
    for i in range(0, 300, 30):
        optimizer.zero_grad()
        F.cross_entropy(model(x[i:i + 30]), y[i:i + 30]).backward()
        optimizer.step()
    with torch.no_grad():
        out = model(x[300:])
        print(f"epoch {epoch} val_acc {(out.argmax(1) == y[300:]).float().mean():.3f}")
"""

HEALTHY = SICK.replace("range(8)", "range(1)").replace("torch.sigmoid(", "torch.relu(")


def treat(folder, *options, source):
    (folder / "train.py").write_text(source)
    done = akeso_at_once(
        folder, "treat", "--json", "out.json", "--run", "run", *options, "train.py", NO_COLOR="1"
    )
    document = json.loads((folder / "out.json").read_text()) if (folder / "out.json").exists() else {}
    return done, document


def test_a_sick_script_is_cured_and_the_change_shown(tmp_path):
    only = ("--only", "substitute-activation", "--only", "reinitialise")
    done, document = treat(tmp_path, *only, "--budget", "1", source=SICK)
    assert done.returncode == 0, done.stderr
    assert document["schema"] == 1
    assert document["status"] in ("repaired", "improved")
    assert document["higher_is_better"] is True
    assert document["after"] > 0.8 > 0.75 > document["before"]
    assert document["diagnoses"][0]["problem"] == "vanishing-gradient"
    assert {edit["remedy"] for edit in document["prescription"]} == {"substitute-activation", "reinitialise"}
    assert document["cost"]["steps"] < 2.1
    assert "--- a/train.py" in done.stderr.decode()
    assert os.path.isfile(document["weights"])
    assert (tmp_path / "train.py").read_text() == SICK


@pytest.mark.parametrize(
    "built",
    ["own class", "nn.Sequential"],
)
def test_weights_that_are_handed_back_fit_the_script_once_it_is_changed(tmp_path, built):
    source = SICK.replace("for _ in range(8)", "for _ in range(5)")
    if built == "nn.Sequential":
        made = "layers = [nn.Linear(2, 8), nn.Sigmoid()]\n"
        made += "for _ in range(5):\n    layers += [nn.Linear(8, 8), nn.Sigmoid()]\n"
        source = source.replace("model = Net()", f"{made}model = nn.Sequential(*layers, nn.Linear(8, 2))")
    ending = (
        "model.eval()\nwith torch.no_grad():\n    print('answer', float(model(x[300:]).double().sum()))\n"
    )
    only = ("--only", "insert-normalisation", "--only", "reinitialise", "--budget", "1.2")
    done, document = treat(tmp_path, *only, source=source + ending)
    assert done.returncode == 0, done.stderr
    assert "insert-normalisation" in {edit["remedy"] for edit in document["prescription"]}
    output = Path(document["weights"]).with_name("output.log").read_text()
    subprocess.run(["patch", "-p1"], input=document["diff"].encode(), cwd=tmp_path, check=True)
    names = runpy.run_path(str(tmp_path / "train.py"))
    model = names["model"]
    model.load_state_dict(load_file(document["weights"]))
    answer = float(model.eval()(names["x"][300:]).detach().double().sum())
    assert answer == pytest.approx(float(output.split("answer")[-1]), abs=1e-4)


def test_a_healthy_script_is_left_alone_after_one_run(tmp_path):
    done, document = treat(tmp_path, source=HEALTHY)
    assert done.returncode == 0, done.stderr
    assert document["status"] == "healthy"
    assert len(document["attempts"]) == 1
    assert document["prescription"] == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--metric", "val_acc ([0-9.]+)"), "--higher-is-better"),
        (("--metric", "val_acc", "--higher-is-better"), "one, around the number"),
        (("--only", "prayer"), "no remedy 'prayer'"),
        (("--plan", "prayer"), "prayer"),
        (("--only", "reinitialise", "--never", "reinitialise"), "only and never both name reinitialise"),
        (("--run", "/dev/null/run"), "no folder to write to"),
        (("--json", "nowhere/out.json"), "cannot be written"),
    ],
)
def test_wrong_usage_is_said_before_anything_is_run(tmp_path, options, words):
    done, _ = treat(tmp_path, *options, source="raise SystemExit(3)")
    assert done.returncode == 2
    assert words in done.stderr.decode()
    assert not (tmp_path / "run").exists()


TWICE = """
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(600, 6)
y = (x[:, :1] + x[:, 1:2] * x[:, 2:3] > 0).float()
model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
loss_of = nn.BCELoss()
for epoch in range(12):
    for i in range(0, 480, 32):
        optimizer.zero_grad()
        loss_of(torch.sigmoid(model(x[i:i + 32])), y[i:i + 32]).backward()
        optimizer.step()
    with torch.no_grad():
        right = (torch.sigmoid(model(x[480:])) > 0.5).float() == y[480:]
        print(f"epoch {epoch} val_acc {right.float().mean():.3f}")
"""


def test_a_sigmoid_too_many_is_taken_off(tmp_path):
    done, document = treat(tmp_path, "--metric", r"val_acc (\S+)", "--higher-is-better", source=TWICE)
    assert done.returncode == 0, done.stderr
    assert document["diagnoses"][0]["problem"] == "improper-output-activation"
    assert document["status"] == "repaired"
    assert document["after"] > document["before"] + 0.2


FORGETFUL = HEALTHY.replace("        optimizer.zero_grad()\n", "")


def test_how_a_script_ends_after_its_training_says_nothing_of_it(tmp_path):
    """It compiles its model, is asked for a figure it never prints, and ends with an exit code of its own."""
    source = FORGETFUL.replace("model = Net()", 'model = Net()\nfast = torch.compile(model, backend="eager")')
    source = source.replace("F.cross_entropy(model(", "F.cross_entropy(fast(") + "raise SystemExit(3)\n"
    options = ("--only", "add-zero-grad", "--metric", r"nothing: ([\d.]+)", "--higher-is-better")
    done, document = treat(tmp_path, *options, source=source)
    assert done.returncode == 0, done.stderr
    assert document["status"] == "repaired"
    assert any("exit code 3" in note for note in document["notes"])
    assert any("matched nothing" in note for note in document["notes"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_is_told_to_end_says_so_and_leaves_nobody_behind(tmp_path, number):
    (tmp_path / "train.py").write_text(
        SICK.replace("    with torch.no_grad():", "    import time; time.sleep(60)\n    if 0:")
    )
    command = [sys.executable, "-m", "akeso", "treat", "--json", "out.json", "--run", "run", "train.py"]
    running = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, env=environment())
    waited = time.monotonic() + 60
    while not (tmp_path / "run" / "attempt-00" / "order.json").exists() and time.monotonic() < waited:
        time.sleep(0.1)
    time.sleep(1)
    running.send_signal(number)
    _, said = running.communicate(timeout=30)
    assert running.returncode == 130
    assert b"Traceback" not in said
    assert "interrupted" in json.loads((tmp_path / "out.json").read_text())["error"]
    assert not any(str(tmp_path) in line for line in _processes())


def _processes():
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield entry.read_bytes().decode(errors="replace")


TWO_MODELS = """
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(600, 6)
y = (x[:, 0] * x[:, 1] > 0).long()
encoder = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3), nn.ReLU())
decoder = nn.Sequential(nn.Linear(3, 2))
optimizer = torch.optim.Adam(decoder.parameters(), lr=1e-2)
for epoch in range(15):
    for i in torch.randperm(400).split(20):
        optimizer.zero_grad()
        nn.functional.cross_entropy(decoder(encoder(x[i])), y[i]).backward()
        optimizer.step()
    with torch.no_grad():
        print("val_acc", (decoder(encoder(x[400:])).argmax(1) == y[400:]).float().mean().item())
"""


def test_models_that_are_trained_together_are_handed_back_together(tmp_path):
    done, document = treat(tmp_path, source=TWO_MODELS)
    assert done.returncode == 0, done.stderr
    assert document["status"] == "repaired"
    assert "[*decoder.parameters(), *encoder.parameters()]" in document["diff"]
    assert list(document["weights_beside"]) == ["decoder"]
    assert document["weights_beside"]["decoder"] in done.stderr.decode()
    subprocess.run(["patch", "-p1"], input=document["diff"].encode(), cwd=tmp_path, check=True)
    names = runpy.run_path(str(tmp_path / "train.py"))
    encoder, decoder = names["encoder"], names["decoder"]
    encoder.load_state_dict(load_file(document["weights"]))
    decoder.load_state_dict(load_file(document["weights_beside"]["decoder"]))
    with torch.no_grad():
        right = decoder(encoder(names["x"][400:])).argmax(1) == names["y"][400:]
    assert right.float().mean().item() == pytest.approx(document["after"], abs=1e-6)
