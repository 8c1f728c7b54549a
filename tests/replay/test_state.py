"""State: every kind of value comes back exactly, without pickle; what cannot is refused by name."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from akeso.errors import BadInput
from akeso.replay.state import pack, unpack
from akeso.replay.state_digest import exact_digest
from akeso.replay.state_filling import Filling, put_back
from akeso.replay.state_tracked import adopt


def _through_json(value: Any) -> Any:
    tree, tensors = pack(value)
    return unpack(json.loads(json.dumps(tree)), {name: tensor.clone() for name, tensor in tensors.items()})


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(plain)
def test_plain_values_come_back_with_their_types(value: Any) -> None:
    back = _through_json(value)
    assert back == value
    assert repr(back) == repr(value)


def test_the_less_plain_ones_come_back_too() -> None:
    values = [
        OrderedDict(b=1, a=2),
        Counter("abca"),
        deque([1, 2], maxlen=3),
        {3, 1},
        frozenset({"x"}),
        1 + 2j,
        Path("a/b"),
        torch.Size([1, 2]),
        torch.float16,
        torch.device("cpu"),
        np.float32(0.1),
        {"$": "a key of ours", 2: "x"},
    ]
    back = _through_json(values)
    assert back == values
    assert [type(item) for item in back] == [type(item) for item in values]
    grown = _through_json(defaultdict(list, a=[1]))
    grown["b"].append(1)
    assert grown == {"a": [1], "b": [1]}
    assert math.isnan(_through_json(float("nan")))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.bool])
def test_tensors_keep_type_bits_and_strides(dtype: torch.dtype) -> None:
    value = (torch.randn(2, 3, 4, 4) > 0).to(dtype).to(memory_format=torch.channels_last)
    back = _through_json(value)
    assert back.dtype == dtype
    assert back.stride() == value.stride()
    assert torch.equal(back, value)


def test_a_tensor_met_twice_is_written_once() -> None:
    shared = torch.randn(4)
    assert len(pack({"a": shared, "b": [shared]})[1]) == 1


def test_what_needs_pickle_is_refused_with_its_path() -> None:
    with pytest.raises(BadInput, match=r"state\.a\.0 is of type .*object"):
        pack({"a": [object()]})


def test_moments_keep_their_type_whatever_load_state_dict_does() -> None:
    weight = torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
    optimizer = torch.optim.SGD([weight], 0.1, momentum=0.9)
    optimizer.state[weight]["momentum_buffer"] = torch.tensor([0.1, 0.2, 0.3])
    saved = _through_json(adopt("o", optimizer).capture())
    other = torch.optim.SGD([torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))], 0.1, momentum=0.9)
    tracked = adopt("o", other)
    tracked.restore(saved)
    assert exact_digest(tracked.capture()) == exact_digest(saved)


def test_hidden_buffers_mode_and_freezing_belong_to_a_module() -> None:
    def build() -> torch.nn.Module:
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
        model.register_buffer("seen", torch.zeros(1), persistent=False)
        return model

    one, two = build(), build()
    one.seen += 5
    one[1].eval()
    one[0].weight.requires_grad_(False)
    adopt("m", two).restore(_through_json(adopt("m", one).capture()))
    assert two.seen.item() == 5
    assert [two[0].training, two[1].training] == [True, False]
    assert not two[0].weight.requires_grad


def test_objects_of_the_users_are_captured_by_their_attributes() -> None:
    class Average:
        def __init__(self, model: torch.nn.Module) -> None:
            self.shadow = {name: item.detach().clone() for name, item in model.named_parameters()}
            self.count = 0

    model = torch.nn.Linear(2, 2)
    one, two = Average(model), Average(torch.nn.Linear(2, 2))
    one.count = 7
    adopt("ema", two).restore(_through_json(adopt("ema", one).capture()))
    assert two.count == 7
    assert all(torch.equal(two.shadow[name], item) for name, item in model.named_parameters())


def test_a_number_cannot_be_tracked_and_the_error_says_where_to_keep_it() -> None:
    with pytest.raises(BadInput, match=r"run\.state\.best"):
        adopt("best", 0.5)


def test_containers_are_restored_in_place() -> None:
    live = {"a": [1], "gone": 0}
    inner = live["a"]
    put_back(live, {"a": [2, 3]})
    assert live == {"a": [2, 3]}
    assert live["a"] is inner


def test_memory_that_is_filled_already_is_not_written_to_again() -> None:
    weight = torch.zeros(2, 2)
    filling = Filling(filled=[weight])
    assert filling.put_back(weight.view(2, 2), torch.ones(2, 2)).tolist() == [[1, 1], [1, 1]]
    assert filling.put_back(weight[0], torch.ones(2)).tolist() == [1, 1]
    assert filling.put_back(row := weight[1], torch.zeros(2)) is row
    assert weight.tolist() == [[0, 0], [0, 0]]

    both: list[int] = []
    live = {"a": both, "b": both}
    filling.put_back(live, {"a": [1], "b": [2]})
    assert live == {"a": [1], "b": [2]}

    halves = np.zeros(4)
    left, right = halves[:2], halves[2:]
    assert filling.put_back(left, np.ones(2)) is left
    assert filling.put_back(right, np.full(2, 2.0)) is right
    assert filling.put_back(halves[1:3], np.full(2, 3.0)).tolist() == [3, 3]
    assert halves.tolist() == [1, 1, 2, 2]
