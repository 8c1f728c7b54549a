"""What tests of runs share."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator

import pytest
import torch

from akeso.replay import replaying, resume
from tests.script.commands import READY

#: What tests of other parts import.
_OTHERS = (
    "benchmarks.", "tests.benchmarks.", "tests.detectors.", "tests.integrations.", "tests.keras.", "tests.remedies.",
    "tests.report.", "tests.script.", "tests.search.", "tests.torch.", "tests.treatment.",
)  # fmt: skip


@pytest.fixture(autouse=True)
def a_program_of_its_own(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run looks for state in all modules of a program: the hundreds of other tests in this process are none of it."""
    own = request.module.__name__
    for name in list(sys.modules):
        last = name.rpartition(".")[2]
        if name.startswith(_OTHERS) or (last.startswith("test_") and name != own):
            monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def runs_begin_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is resumed or replayed begins with torch imported already."""
    for module in (replaying, resume):
        monkeypatch.setattr(module, "subprocess", READY.serves(module))


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
