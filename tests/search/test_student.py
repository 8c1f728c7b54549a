"""Student's distribution, beside tabulated values."""

from __future__ import annotations

import numpy as np
import pytest

from akeso.search.student import quantile, share_below

TABLE = {1: 15.8945, 2: 4.8487, 3: 3.4819, 4: 2.9985, 10: 2.3593, 30: 2.1470}


def test_the_quantile_is_close_to_the_tabulated_one() -> None:
    for freedom, wanted in TABLE.items():
        assert quantile(0.98, freedom) == pytest.approx(wanted, rel=0.015)


def test_the_probability_of_less_is_close_to_the_tabulated_one() -> None:
    for freedom, place in TABLE.items():
        below, middle, above = share_below(np.array([-place, 0.0, place]), freedom)
        assert below == pytest.approx(0.02, rel=0.04)
        assert middle == 0.5
        assert above == pytest.approx(0.98, abs=0.001)


@pytest.mark.parametrize("freedom", [-1, 0, 1, 2, 3, 100])
def test_what_is_infinitely_far_is_certain(freedom: int) -> None:
    with np.errstate(all="raise"):
        assert share_below(np.array([-np.inf, np.inf]), freedom).tolist() == pytest.approx([0, 1], abs=1e-12)
