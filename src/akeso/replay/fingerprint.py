"""What the bits of a run depend on besides its seed: versions, threads, devices, flags, code, data.

:func:`pin` makes this process deterministic; :func:`take` says what it runs on. Two fingerprints are compared
entry by entry, and each difference is worded so that a reader knows which promise it touches.
"""

from __future__ import annotations

import os
import platform
import sys
import warnings
from collections.abc import Mapping
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from akeso.replay import generators
from akeso.replay.keys import key

_ENVIRONMENT = (
    "CUBLAS_WORKSPACE_CONFIG",
    "MKL_CBWR",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "ONEDNN_MAX_CPU_ISA",
)


def pin(seed: int, threads: int | None = None) -> None:
    """Make this process deterministic from here on, and seed every global generator.

    Kernels without a deterministic form raise an error of torch's that names them.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    # Read by cuBLAS when its first handle is made.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    with warnings.catch_warnings():
        # Newer versions rename these switches and warn; the old names work everywhere.
        warnings.simplefilter("ignore")
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
    # Its backward pass adds with atomics, in whatever order they come.
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    generators.seed_all(key(seed, "setup"))


def take() -> dict[str, Any]:
    """Return what the bits of this process depend on, as plain JSON."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        flags = {
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "cudnn.benchmark": torch.backends.cudnn.benchmark,
            "matmul precision": torch.get_float32_matmul_precision(),
            "cudnn tf32": torch.backends.cudnn.allow_tf32,
            "default dtype": str(torch.get_default_dtype()),
            "mkldnn": torch.backends.mkldnn.is_available(),
        }
    return {
        "versions": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "numpy": str(np.__version__),
            "akeso": _version(),
            "cuda": torch.version.cuda or "none",
            "cudnn": _cudnn(),
        },
        "threads": {"intra-op": torch.get_num_threads(), "inter-op": torch.get_num_interop_threads()},
        "devices": {"machine": platform.machine(), "cpu": _cpu(), "cuda": _cards()},
        "flags": flags,
        "environment": {name: os.environ.get(name, "") for name in _ENVIRONMENT},
        "hash seed": {"PYTHONHASHSEED": hash_seed()},
    }


def hash_seed() -> str:
    """Return the seed of this process's string hashes, or ``random``: sets are then in another order each time."""
    return os.environ.get("PYTHONHASHSEED", "random") if sys.flags.hash_randomization else "0"


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sentence for every entry in which two fingerprints differ.

    >>> differences({"threads": {"intra-op": 4}}, {"threads": {"intra-op": 1}})
    ('threads: intra-op was 4, is 1',)
    """
    found = []
    for group in then:
        if group == "hash seed":
            # Said once at the start of a run; a random seed is another one every time and no news.
            continue
        old, new = then[group], now.get(group, {})
        for name in old:
            if old[name] != new.get(name):
                found.append(f"{group}: {name} was {old[name]!r}, is {new.get(name)!r}")
        found += [f"{group}: {name} was not there, is {new[name]!r}" for name in new if name not in old]
    return tuple(found)


def _version() -> str:
    try:
        return metadata.version("akeso")
    except metadata.PackageNotFoundError:
        return "unknown"


def _cudnn() -> str:
    # Asking for the version loads the library; a machine without a card need not pay for that.
    return str(torch.backends.cudnn.version()) if torch.cuda.is_available() else "none"


def _cpu() -> str:
    name = platform.processor()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"


def _cards() -> list[str]:
    if not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]


def code(script: Path | None) -> dict[str, str]:
    """Return the digests of the script and of the modules imported from beside it, by relative path."""
    if script is None or not script.exists():
        return {}
    home = script.resolve().parent
    # Thousands of modules may be loaded: only those that can lie beside the script are looked at closely.
    near = {f"{home}{os.sep}", f"{script.absolute().parent}{os.sep}"}
    files = {script.resolve()}
    for module in list(sys.modules.values()):
        place = getattr(module, "__file__", None)
        if not place or not place.endswith(".py") or not os.path.abspath(place).startswith(tuple(near)):
            continue
        path = Path(place).resolve()
        if not {"site-packages", ".venv", "venv"} & set(path.parts) and path.exists():
            files.add(path)
    own = Path(__file__).resolve().parents[1]
    return {
        os.path.relpath(path, home): blake2b(path.read_bytes(), digest_size=12).hexdigest()
        for path in sorted(files)
        if own not in path.parents
    }
