"""What cannot be run or was asked wrongly: a clear line and the right exit code, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from akeso.cli import call
from tests.script.commands import akeso, python, write


def said(done: object) -> str:
    return done.stderr.decode()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.py"], "there is no script 'missing.py'\n"),
        (["missing"], "there is no script 'missing'; for a module: akeso run -m missing"),
        (["folder"], "is a directory without a __main__.py"),
        ([], "Missing argument 'SCRIPT'"),
        (["--budget", "lots", "ok.py"], "'lots' is no share"),
        (["--budget", "0", "ok.py"], "not over 0"),
        (["--metric", "(", "ok.py"], "is no regular expression"),
        (["--metric", "acc", "ok.py"], "has 0 groups; give one"),
        (["--profile", "nonsense", "ok.py"], "cannot read a profile from 'nonsense'"),
        (["--seed", "3", "ok.py"], "only together with --deterministic"),
        (["--higher-is-better", "ok.py"], "give --metric too"),
        (["--json", "folder", "ok.py"], "is a directory; give a file"),
        (["--json", "no/such/x.json", "ok.py"], "there is no folder"),
        (["--fail-on", "everything", "ok.py"], "--fail-on"),
        (["--no-such-option", "ok.py"], "No such option"),
    ],
)
def test_wrong_usage_is_said_and_exits_with_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    write(tmp_path, "ok.py", "print('must not run')")
    assert call(["run", *arguments]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "ok.py"]


def test_a_module_that_does_not_exist_is_said_and_exits_with_2(tmp_path: Path) -> None:
    done = akeso(tmp_path, "run", "-m", "no_such_module_here")
    assert done.returncode == 2
    assert "there is no module 'no_such_module_here'" in said(done)
    assert "Traceback" not in said(done)


def test_a_script_that_is_not_python_gives_pythons_own_message_and_code(tmp_path: Path) -> None:
    (tmp_path / "binary.py").write_bytes(bytes(range(256)) * 4)
    (tmp_path / "prose.py").write_text("This is not a program.\n")
    for name in ("binary.py", "prose.py"):
        done = akeso(tmp_path, "run", name)
        assert done.returncode == python(tmp_path, name).returncode == 1
        assert "SyntaxError" in said(done)
        assert "Traceback" not in said(done)


def test_a_script_that_trains_nothing_is_said_to_and_exits_with_0(tmp_path: Path) -> None:
    write(tmp_path, "nothing.py", "print('hello')")
    done = akeso(tmp_path, "run", "--json", "out.json", "nothing.py")
    assert (done.returncode, done.stdout) == (0, b"hello\n")
    assert "no optimizer step was seen" in said(done)
    assert '"status": "healthy"' in (tmp_path / "out.json").read_text()
    assert not (tmp_path / "akeso-runs").exists()


def test_torch_is_not_imported_for_a_script_that_does_not(tmp_path: Path) -> None:
    write(tmp_path, "light.py", "import sys; print('torch' in sys.modules)")
    assert akeso(tmp_path, "run", "light.py").stdout == b"False\n"


def test_a_script_that_fails_keeps_its_code_and_the_report_still_comes(tmp_path: Path) -> None:
    write(tmp_path, "fails.py", "import sys; sys.exit(9)")
    done = akeso(tmp_path, "run", "--json", "out.json", "fails.py")
    assert done.returncode == 9
    assert "no optimizer step was seen" in said(done)
    assert '"script_exit_code": 9' in (tmp_path / "out.json").read_text()


def test_a_script_that_fails_in_training_is_not_called_healthy(tmp_path: Path) -> None:
    write(
        tmp_path,
        "fails.py",
        """
        import torch
        layer = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        layer(torch.ones(4, 2)).sum().backward()
        optimizer.step()
        raise SystemExit(4)
        """,
    )
    done = akeso(tmp_path, "run", "fails.py")
    assert done.returncode == 4
    assert "akeso: nothing found before the script failed, one step on" in said(done)
    assert "healthy" not in said(done)


def test_a_closed_standard_error_is_no_trouble(tmp_path: Path) -> None:
    write(tmp_path, "mute.py", "import os; os.close(2); print('done')")
    done = akeso(tmp_path, "run", "mute.py")
    assert (done.returncode, done.stdout) == (0, b"done\n")
