"""Everything that README and docs show is run.

Blocks marked ``python`` are executed in one interpreter per page, where each sees the names of those before
it; one that begins with ``# name.py`` is saved under that name instead. In blocks marked ``bash`` every line is
a command that must end with 0, or with what ``# exit code N`` behind it says. All blocks of a page run one after
the other in one folder. A block is left out only when the line before it is ``<!-- not run: reason -->``.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.script.commands import READY, akeso_at_once, environment

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"(?P<before>[^\n]*)\n+```(?P<language>\w+)\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE)
SKIPPED = re.compile(r"<!-- not run: \S.+ -->")


@dataclass(frozen=True, slots=True)
class Block:
    """One block of code on a page."""

    language: str
    code: str
    skipped: bool


def blocks_of(page: Path) -> list[Block]:
    text = "\n" + page.read_text(encoding="utf-8")
    return [
        Block(match["language"], match["code"], bool(SKIPPED.fullmatch(match["before"].strip())))
        for match in BLOCK.finditer(text)
    ]


class Interpreter:
    """A Python of its own, in which the blocks of a page run one after the other and see each other's names."""

    LOOP = """
import json, sys, traceback
answers, sys.stdout, sys.path[0] = sys.stdout, sys.stderr, ""
names = {"__name__": "__main__"}
for line in sys.stdin:
    try:
        exec(compile(json.loads(line), "a block", "exec"), names)
        answer = ""
    except BaseException:
        answer = traceback.format_exc()
    print(json.dumps(answer), file=answers, flush=True)
"""

    def __init__(self, folder: Path, kept: Path) -> None:
        (kept / "loop.py").write_text(self.LOOP)
        ours, its = socket.socketpair()
        with ours, its, open(os.devnull, "w") as nothing:
            files = {0: its.fileno(), 1: its.fileno(), 2: nothing.fileno()}
            self._process = READY.start([str(kept / "loop.py")], str(folder), surroundings(), files)
            self._talk = ours.makefile("rw")

    def run(self, code: str) -> str:
        """Run a block; the traceback of what went wrong, or nothing."""
        self._talk.write(json.dumps(code) + "\n")
        self._talk.flush()
        answer = self._talk.readline()
        return str(json.loads(answer)) if answer else "the interpreter ended"

    def __enter__(self) -> Interpreter:
        return self

    def __exit__(self, *_: object) -> None:
        self._talk.close()
        self._process.wait()


def surroundings() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return environment(PATH=path)


def run_python(code: str, folder: Path, interpreter: Interpreter) -> None:
    named = re.match(r"# (\w+\.py)\n", code)
    if named:
        (folder / named[1]).write_text(code)
        return
    trouble = interpreter.run(code)
    assert not trouble, f"{code}\n{trouble}"


def run_bash(code: str, folder: Path) -> None:
    for line in code.replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        expected = re.search(r"# exit code (\d+)", line)
        split = shlex.shlex(line, posix=True, punctuation_chars=True)
        split.whitespace_split = True  # at blanks and where the shell does, not at every sign
        words = list(split)
        if words[0] == "akeso" and not any(set(word) <= set("|&;<>()") for word in words if word):
            done = akeso_at_once(folder, *words[1:], **surroundings())
        else:
            done = subprocess.run(
                ["bash", "-c", line], cwd=folder, capture_output=True, timeout=600, env=surroundings()
            )
        wanted = int(expected[1]) if expected else 0
        assert done.returncode == wanted, f"{line}\n{done.stdout.decode()}\n{done.stderr.decode()}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_shown_works(page: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with Interpreter(tmp_path, tmp_path_factory.mktemp("loop")) as interpreter:
        for block in blocks_of(page):
            if block.skipped:
                continue
            if block.language == "python":
                run_python(block.code, tmp_path, interpreter)
            elif block.language == "bash":
                run_bash(block.code, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_option_of_run_is_in_the_docs() -> None:
    from akeso.script.command import run as command

    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    options = [name for option in command.params for name in option.opts if name.startswith("-")]
    assert [name for name in options if f"`{name}" not in text] == []


def test_every_command_is_in_the_docs() -> None:
    from akeso.cli import COMMANDS

    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"`akeso {name}" not in text] == []
