"""Gradients that the script itself makes short."""

from __future__ import annotations

import pytest

from akeso.detectors.testing import Sketch, flat
from akeso.examination import examine


@pytest.mark.parametrize(("raw", "named"), [(1.0, False), (2e-5, True)])
def test_gradients_that_the_script_clips_have_not_vanished(raw: float, named: bool) -> None:
    sketch = Sketch(
        gradient=lambda index: 1e-6, update=lambda index: 1e-6, loss=flat(2.3), accuracy=flat(0.1),
        run={"grad_norm_raw": raw, "clip_limit": 2e-5},
    )  # fmt: skip
    found = [one.problem for one in examine(sketch.history()).diagnoses]
    assert ("vanishing-gradient" in found) is named
