"""A script behaves under ``akeso run`` as it does under Python: output, errors, exit code, everything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.script.commands import akeso, environment, python, write

SCRIPTS = {
    "what it knows of itself": """
        import sys, os
        print(sys.argv, __name__, __file__, __spec__, __package__, os.path.basename(sys.path[0]))
        import __main__
        print(__main__.__dict__ is globals(), sys.modules["__main__"] is __main__, __main__.sys is sys)
        import neighbour
        if __name__ == "__main__":
            print("main")
        import inspect
        def function(): return 1
        print(inspect.getsource(function))
        print(__annotations__, sorted(k for k in globals() if k.startswith("__")))
    """,
    "exit with a code": "import sys; print('x'); sys.exit(3)",
    "exit with a large code": "import sys; sys.exit(259)",
    "exit with a message": "import sys; sys.exit('no data here')",
    "exit without a code": "import sys; sys.exit()",
    "exit with nothing": "raise SystemExit(None)",
    "an exception": """
        def inner(): return 1 / 0
        def outer(): inner()
        outer()
    """,
    "an exception from another": """
        try:
            {}["a"]
        except KeyError as error:
            raise ValueError("b") from error
    """,
    "a failing import": "import numpy, does_not_exist_at_all",
    "a failing neighbour": "import broken",
    "a print that fails": "import sys; sys.stdout.reconfigure(encoding='ascii'); print('é')",
    "its own hook for exceptions": """
        import sys
        def hook(kind, error, trace): print("hook", kind.__name__, error, trace.tb_lineno, file=sys.stderr)
        sys.excepthook = hook
        raise RuntimeError("c")
    """,
    "handlers at exit": """
        import atexit, sys
        atexit.register(print, "first registered")
        atexit.register(print, "last registered")
        sys.exit(4)
    """,
    "a syntax error": "print('never')\nfor in x:\n    pass\n",
    "os._exit": "import os; print('lost without a flush?', flush=True); os._exit(5)",
    "a fork": """
        import os, sys
        child = os.fork()
        if child == 0:
            print("child", flush=True)
            sys.exit(7)
        print("parent", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """,
    "a fork that runs off the end": """
        import os
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        print("end of", "parent" if child else "child", flush=True)
    """,
    "spawned processes": """
        import multiprocessing, pickle
        class Point:
            def __init__(self, x): self.x = x
        def double(point): return Point(2 * point.x)
        if __name__ == "__main__":
            print(pickle.loads(pickle.dumps(Point(1))).x, Point.__module__)
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(double, [Point(3)])[0].x)
    """,
    "forked processes": """
        import multiprocessing
        def double(x): return 2 * x
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(double, [3, 4]))
    """,
    "a thread that outlives the script": """
        import threading
        release = threading.Event()
        def work():
            release.wait()
            print("thread done")
        threading.Thread(target=work).start()
        print("script done")
        release.set()
    """,
    "an idle pool of threads": """
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(2)
        print(pool.submit(sum, [1, 2]).result())
    """,
    "binary output": r"""
        import sys, os
        sys.stdout.write("text\n"); sys.stdout.flush()
        sys.stdout.buffer.write(bytes(range(256))); sys.stdout.buffer.flush()
        os.write(1, b"\xff\xfe raw\n")
        sys.stdout.writelines(["a\n", "b\n"])
        print("accuracy: 0.5", end="\r")
        print("é", "ü" * 3000)
        sys.stderr.write("to stderr without an end")
    """,
    "the streams": """
        import sys, io
        print(type(sys.stdout), sys.stdout is sys.__stdout__, sys.stdout.isatty(), sys.stdout.encoding)
        print(isinstance(sys.stdout, io.TextIOWrapper), sys.stdout.fileno(), sys.stdout.line_buffering)
        sys.stdout.reconfigure(line_buffering=True)
    """,
    "an interrupt": """
        import atexit, os, signal
        atexit.register(print, "at exit")
        print("before", flush=True)
        os.kill(os.getpid(), signal.SIGINT)
        while True: pass
    """,
    "an interrupt that is handled": """
        import os, signal
        try:
            os.kill(os.getpid(), signal.SIGINT)
            while True: pass
        except KeyboardInterrupt:
            print("saved")
    """,
    "a kill": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "warnings": "import warnings; warnings.warn('careful')",
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_behaves_as_without_akeso(tmp_path: Path, name: str) -> None:
    write(tmp_path, "neighbour.py", "print('neighbour of', __name__)")
    write(tmp_path, "broken.py", "raise OSError('broken on import')")
    write(tmp_path, "sub/script.py", SCRIPTS[name])
    for module in ("neighbour.py", "broken.py"):
        (tmp_path / "sub" / module).write_text((tmp_path / module).read_text())
    arguments = ["sub/script.py", "--lr", "0.1", "-x", "--help"]
    alone = python(tmp_path, *arguments)
    watched = akeso(tmp_path, "run", "--quiet", *arguments)
    assert watched.stdout == alone.stdout
    assert watched.stderr == alone.stderr
    assert watched.returncode == alone.returncode


def test_a_module_behaves_as_without_akeso(tmp_path: Path) -> None:
    code = """
        import os, sys
        from . import helper
        print(sys.argv, __name__, __file__, __spec__.name, __package__, helper.__name__)
        print(sys.path[0] == os.getcwd())
        sys.exit(6)
    """
    write(tmp_path, "package/__init__.py", "")
    write(tmp_path, "package/helper.py", "")
    write(tmp_path, "package/train.py", code)
    write(tmp_path, "package/__main__.py", code)
    for module in ("package.train", "package"):
        alone = python(tmp_path, "-m", module, "--lr", "0.1")
        watched = akeso(tmp_path, "run", "--quiet", "-m", module, "--lr", "0.1")
        assert (watched.stdout, watched.stderr) == (alone.stdout, alone.stderr)
        assert watched.returncode == alone.returncode == 6


def test_a_folder_with_a_main_is_run(tmp_path: Path) -> None:
    write(tmp_path, "app/__main__.py", "import sys, other; print(sys.argv, other.x)")
    write(tmp_path, "app/other.py", "x = 1")
    watched = akeso(tmp_path, "run", "--quiet", "app", "a")
    assert watched.stdout == python(tmp_path, "app", "a").stdout
    assert watched.returncode == 0


def test_ctrl_c_from_outside_ends_by_the_signal_and_still_reports(tmp_path: Path) -> None:
    write(tmp_path, "wait.py", "import sys\nprint('ready', flush=True)\nfor line in sys.stdin: pass")
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-m", "akeso", "run", "wait.py"],
        cwd=tmp_path, env=environment(), stdin=pipe, stdout=pipe, stderr=pipe,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"ready\n"
        os.kill(process.pid, signal.SIGINT)
        stderr = process.stderr.read().decode()
    assert process.returncode == -signal.SIGINT
    assert stderr.startswith("Traceback")
    assert stderr.count("KeyboardInterrupt") == 1
    assert "src/akeso" not in stderr
    assert "no optimizer step was seen" in stderr


def test_the_akeso_command_itself_is_installed() -> None:
    command = Path(sys.executable).with_name("akeso")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stdout.startswith("akeso 0.")
