"""Every detector of every profile keeps the contract."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from akeso.detectors import DETECTORS
from akeso.detectors.testing import DetectorContract, Sketch


@pytest.mark.parametrize("name", sorted(DETECTORS))
class TestEveryDetector(DetectorContract):
    @pytest.fixture(autouse=True)
    def _the_detector(self, name):
        self.detector = DETECTORS[name]()


@pytest.mark.parametrize("name", sorted(name for name in DETECTORS if "-" in name and "tackler" not in name))
def test_healthy_training_gives_nothing_serious(name):
    if name.startswith("autotrainer"):
        pytest.skip("the papers' rules are kept with their flaws")
    found = [s for s in DETECTORS[name]().detect(Sketch().history()) if s.severity != "info"]
    assert found == []


def test_detectors_look_at_nothing_but_their_history():
    script = """
        import builtins, socket, sys
        class Gone:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in {"torch", "keras", "optuna", "ray", "sklearn"}:
                    raise ImportError(name)
        sys.meta_path.insert(0, Gone())
        from akeso.detectors import DETECTORS
        from akeso.detectors.testing import Sketch, flat
        from akeso.profiles import load_profile
        histories = [Sketch().history(), Sketch(loss=flat()).history()]
        def forbidden(*args, **kwargs):
            raise AssertionError("a detector looked outside its history")
        import os, random, time
        import numpy as np
        for module, names in ((builtins, ["open", "input", "print"]), (time, ["time", "perf_counter", "monotonic"]),
                              (os, ["getenv", "listdir", "stat"]), (random, ["random"]), (socket, ["socket"]),
                              (np.random, ["default_rng", "rand"])):
            for name in names:
                setattr(module, name, forbidden)
        for history in histories:
            for kind in DETECTORS.values():
                list(kind().detect(history))
        sys.stdout.write("done")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "done", done.stderr
