"""What tests of runs share."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def process_as_before() -> Iterator[None]:
    """Runs pin the process; the next test gets it as it was."""
    threads, sdp = torch.get_num_threads(), torch.backends.cuda.mem_efficient_sdp_enabled()
    cudnn = (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tf32, precision = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)
    torch.backends.cuda.enable_mem_efficient_sdp(sdp)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.backends.cudnn.allow_tf32 = tf32
        torch.set_float32_matmul_precision(precision)
