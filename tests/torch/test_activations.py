"""Outputs that do not lie in memory in the order of their dimensions are read as those that do."""

from __future__ import annotations

import pytest
import torch

from akeso.torch.activations import Sites, readings_of, sample


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((60, 32, 64), (1, 0, 2)),
        ((32, 8, 10, 12), (0, 2, 3, 1)),
        ((40, 500), (1, 0)),
        ((64, 30, 9), (2, 1, 0)),
    ],
)
def test_transposed_outputs_give_the_same_readings(shape: tuple[int, ...], order: tuple[int, ...]) -> None:
    transposed = torch.randn(shape, generator=torch.Generator().manual_seed(0)).permute(order)
    plain = transposed.contiguous()
    assert torch.equal(sample(transposed), sample(plain))

    found = []
    for tensor in (transposed, plain):
        sites = Sites()
        sites.begin()
        sites.activation("act", True, "relu", tensor.relu())
        found.append(readings_of({tag: float(value) for tag, value in sites.take()}))
    assert found[0]["act_dead"] == found[1]["act_dead"]
    for signal, by_site in found[1].items():
        assert found[0][signal] == pytest.approx(by_site, rel=1e-6)
