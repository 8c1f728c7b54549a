"""Somebody's program, run in this process as Python itself would run it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import os
import sys
import threading
import types
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from akeso.errors import BadInput, Stop
from akeso.script.tracebacks import without_akeso


@dataclass(frozen=True, slots=True)
class Program:
    """A script or module with its arguments."""

    target: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False

    @property
    def name(self) -> str:
        """A short name, fit for a folder."""
        if self.is_module:
            return self.target
        path = Path(self.target)
        return (path.resolve().name if path.is_dir() else path.stem) or "script"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a program ended: the exit code Python would give, and whether it was interrupted."""

    code: int
    interrupted: bool = False
    stopped: str = ""
    failed: bool = False


class NotRunnable(BadInput):
    """There is nothing under the given name that could be run."""


def check(program: Program) -> None:
    """Raise :class:`NotRunnable` when there is nothing that could be run."""
    if program.is_module:
        return
    path = Path(program.target)
    if path.is_dir() and not (path / "__main__.py").is_file():
        raise NotRunnable(f"{program.target!r} is a directory without a __main__.py; give the script itself")
    if not path.exists():
        named = "/" not in program.target and path.suffix != ".py"
        hint = f"; for a module: akeso run -m {program.target}" if named else ""
        raise NotRunnable(f"there is no script {program.target!r}{hint}")
    try:
        with open(path / "__main__.py" if path.is_dir() else path, "rb"):
            pass
    except OSError as error:
        raise NotRunnable(f"the script {program.target!r} cannot be read: {error.strerror}") from error


def run(program: Program) -> Ending:
    """Run a program to its end as ``__main__``; print what Python would print about its exceptions."""
    try:
        code, module = _prepare(program)
        exec(code, module.__dict__)
    except NotRunnable:
        raise
    except SystemExit as leaving:
        ending = _left(leaving)
    except Stop as stopped:
        ending = Ending(0, stopped=str(stopped) or "stopped")
    except KeyboardInterrupt as interrupt:
        _show(interrupt)
        ending = Ending(130, interrupted=True, failed=True)
    except BaseException as error:
        _show(error)
        ending = Ending(1, failed=True)
    else:
        ending = Ending(0)
    _wait_for_threads()
    return ending


def _prepare(program: Program) -> tuple[CodeType, types.ModuleType]:
    return _prepare_module(program) if program.is_module else _prepare_script(program)


def _prepare_script(program: Program) -> tuple[CodeType, types.ModuleType]:
    path = Path(program.target)
    folder = os.path.dirname(os.path.realpath(path))
    file = os.path.join(os.getcwd(), program.target)
    if path.is_dir():
        folder, file = program.target, str(path / "__main__.py")
    sys.argv[:] = [program.target, *program.arguments]
    _set_first_path(folder)
    with io.open_code(file) as opened:
        source = opened.read()
    code = _compiled(source, file)
    loader = importlib.machinery.SourceFileLoader("__main__", file)
    return code, _new_main(file, loader=loader)


def _compiled(source: bytes, file: str) -> CodeType:
    try:
        return compile(source, file, "exec", dont_inherit=True)
    except ValueError as error:  # null bytes: older Pythons say so with another exception than python itself
        if isinstance(error, SyntaxError):
            raise
        raise SyntaxError(str(error), (file, 1, None, None)) from None


def _prepare_module(program: Program) -> tuple[CodeType, types.ModuleType]:
    sys.argv[:] = ["-m", *program.arguments]
    _set_first_path(os.getcwd())
    spec = _find(program.target)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _find(f"{program.target}.__main__")
    get_code = getattr(spec.loader, "get_code", None) if spec else None
    code = get_code(spec.name) if spec and get_code else None
    if spec is None or code is None:
        raise NotRunnable(
            f"there is no module {program.target!r} that could be run; sys.path starts with {os.getcwd()!r}"
        )
    assert isinstance(code, CodeType)
    sys.argv[0] = spec.origin or program.target
    return code, _new_main(spec.origin, spec=spec)


def _find(name: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            return None  # a parent package does not exist; anything else failed inside of one
        raise


def _new_main(
    file: str | None,
    loader: importlib.machinery.SourceFileLoader | None = None,
    spec: importlib.machinery.ModuleSpec | None = None,
) -> types.ModuleType:
    """A fresh ``__main__``. The module is real, so that pickle and spawned children find what it defines."""
    module = types.ModuleType("__main__")
    module.__dict__.update(
        __file__=file,
        __cached__=spec.cached if spec else None,
        __loader__=spec.loader if spec else loader,
        __spec__=spec,
        __package__=spec.parent if spec else None,
        __builtins__=sys.modules["builtins"],
        __annotations__={},
    )
    sys.modules["__main__"] = module
    return module


def _set_first_path(folder: str) -> None:
    if getattr(sys.flags, "safe_path", False):
        return
    if sys.path:
        sys.path[0] = folder
    else:
        sys.path.append(folder)


def _left(leaving: SystemExit) -> Ending:
    """What ``sys.exit`` with any argument means."""
    code = leaving.code
    if code is None:
        return Ending(0)
    if isinstance(code, int):
        return Ending(int(code) & 0xFF, failed=int(code) & 0xFF != 0)
    print(code, file=sys.stderr, flush=True)
    return Ending(1, failed=True)


def _show(error: BaseException) -> None:
    """Show an exception as the interpreter would, with the script's own hook if it has set one."""
    without_akeso(error)
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except BaseException:
        sys.__excepthook__(type(error), error, error.__traceback__)


def _wait_for_threads() -> None:
    """Python waits for the program's threads before it goes; so does the report.

    The interpreter's own way is used, because it also tells idle thread pools to end, for which one would
    otherwise wait for ever.
    """
    ours = threading.current_thread()
    if not any(thread is not ours and not thread.daemon for thread in threading.enumerate()):
        return
    shutdown = getattr(threading, "_shutdown", None)
    if shutdown is not None:
        try:
            shutdown()
        except KeyboardInterrupt as interrupt:
            _show(interrupt)
