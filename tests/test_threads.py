"""Processes that akeso starts do not spin while they wait: beside other work they would wait for each other."""

from __future__ import annotations

from akeso.script.prescribed.order import Order
from akeso.script.prescribed.process import Running
from akeso.threads import yielding


def test_threads_yield_unless_the_user_has_said_how_they_wait() -> None:
    assert yielding({"PATH": "/bin"}) == {"PATH": "/bin", "GOMP_SPINCOUNT": "1000"}
    for said in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        assert yielding({said: "7"}) == {said: "7"}


def test_the_script_of_an_attempt_is_told(tmp_path, monkeypatch) -> None:
    for said in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        monkeypatch.delenv(said, raising=False)
    script = tmp_path / "script.py"
    script.write_text("import os\nprint('spins', os.environ['GOMP_SPINCOUNT'])\n")
    running = Running(Order(str(script), [], False, str(tmp_path), []))
    try:
        assert running.wait(120).why == "ended"
    finally:
        running.end()
    assert "spins 1000" in (tmp_path / "output.log").read_text()
