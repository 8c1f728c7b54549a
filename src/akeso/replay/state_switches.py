"""Switches of a process that decide which kernels are used, and that a program, or torch itself, may turn.

A kernel of oneDNN that fails turns oneDNN off for the rest of the process; a program may change precision or
default type between two phases. A process that goes on has to stand as the one before it stood.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch


def capture() -> dict[str, Any]:
    """Return how the switches stand."""
    cudnn = torch.backends.cudnn
    with warnings.catch_warnings():
        # Newer versions rename these switches and warn; the old names work everywhere.
        warnings.simplefilter("ignore")
        return {
            "mkldnn": torch._C._get_mkldnn_enabled(),
            "cudnn": [cudnn.enabled, cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32],
            "matmul precision": torch.get_float32_matmul_precision(),
            "default dtype": torch.get_default_dtype(),
            "deterministic": [
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ],
        }


def restore(saved: dict[str, Any]) -> None:
    """Put the switches as they stood."""
    cudnn = torch.backends.cudnn
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch._C._set_mkldnn_enabled(saved["mkldnn"])
        cudnn.enabled, cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32 = saved["cudnn"]
        torch.set_float32_matmul_precision(saved["matmul precision"])
        torch.set_default_dtype(saved["default dtype"])
        whole, warn_only = saved["deterministic"]
        torch.use_deterministic_algorithms(whole, warn_only=warn_only)
