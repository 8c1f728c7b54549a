"""Liveness: what a loop carries is told from what it merely uses."""

from __future__ import annotations

import linecache
from types import CodeType

import pytest

from akeso.replay.state_liveness import LoopNames, loops_around


def _names(body: str, line: int, at_head: bool = True) -> LoopNames:
    text = f"def program():\n{body}"
    name = f"<liveness {abs(hash(text))}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    module = compile(text, name, "exec")
    code = next(item for item in module.co_consts if isinstance(item, CodeType))
    found = loops_around(code, line, at_head)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("body", "carried", "scratch"),
    [
        ("    for b in s:\n        total += b\n        x = b\n", {"total"}, {"x", "b"}),
        ("    for b in s:\n        best = min(best, b)\n", {"best"}, {"b"}),
        ("    for b in s:\n        if b:\n            x = 1\n        print(x)\n", {"x"}, {"b"}),
        (
            "    for b in s:\n        if b:\n            x = 1\n        else:\n            x = 2\n        y = x\n",
            set(),
            {"x", "y"},
        ),
        (
            "    for b in s:\n        if b:\n            continue\n        x = b\n        use(x)\n",
            set(),
            {"x"},
        ),
        (
            "    for b in s:\n        h = [h for h in b]\n        f = lambda q: q + k\n        k = 1\n",
            {"k"},
            {"h", "f"},
        ),
        (
            "    for b in s:\n        with open(b) as f:\n            x = f.read()\n        y = x\n",
            set(),
            {"f", "x", "y"},
        ),
        (
            "    for b in s:\n        try:\n            x = b()\n        except E:\n            pass\n        use(x)\n",
            {"x"},
            {"b"},
        ),
        ("    for b in s:\n        for c in b:\n            x = c\n        use(x)\n", {"x"}, {"b", "c"}),
        # Read after the loop: what only some iterations assign has to outlast the others.
        (
            "    for b in s:\n        y = b\n        if y:\n            at = b\n    use(at, y)\n",
            {"at"},
            {"y", "b"},
        ),
        (
            "    for b in s:\n        if b:\n            continue\n        at = b\n    use(at)\n",
            {"at"},
            {"b"},
        ),
        ("    while n < 9:\n        b = next(s)\n        n = n + 1\n", {"n"}, {"b"}),
    ],
)
def test_carried_and_scratch(body: str, carried: set[str], scratch: set[str]) -> None:
    found = _names(body, 2)
    assert scratch <= found.scratch
    assert not carried & found.scratch


def test_what_an_outer_loop_prepares_is_not_scratch_of_the_inner() -> None:
    body = (
        "    for e in es:\n        total = 0\n        rate = f(e)\n        for b in s:\n"
        "            total += b * rate\n            x = b\n        show(total, x)\n"
    )
    inner = _names(body, 5)
    assert {"total", "rate", "e"}.isdisjoint(inner.scratch)
    assert "b" in inner.scratch
    assert "x" not in inner.scratch_at_end


def test_hidden_positions_are_reported() -> None:
    assert _names("    for i, b in enumerate(s):\n        use(i)\n", 2).counters == (("i", 2),)
    assert _names("    for i, b in enumerate(s):\n        use(b)\n", 2).counters == ()
    assert _names("    for i, b in enumerate(s, run.index):\n        use(i)\n", 2).counters == ()
    assert _names("    for a, b in zip(s, t):\n        use(a)\n", 2).hidden == (("zip", 2),)
    assert _names("    for b in tqdm(islice(s, 5)):\n        use(b)\n", 2).hidden == (("islice", 2),)


def test_hidden_positions_are_found_behind_what_shows_progress() -> None:
    assert _names("    for i, b in tqdm(enumerate(s), total=9):\n        use(i)\n", 2).counters == (("i", 2),)
    assert _names("    bar = tqdm(enumerate(s))\n    for i, b in bar:\n        use(i)\n", 3).counters == (
        ("i", 3),
    )
    assert _names("    for b in run.batches(list(zip(s, t))):\n        use(b)\n", 2).hidden == ()


def test_what_an_iteration_has_made_before_it_asks_is_still_needed() -> None:
    body = (
        "    while n < 9:\n        scale = f(n)\n        spare = scale\n        if n:\n            x = next(s)\n"
        "            use(x, scale)\n        n = n + 1\n"
    )
    assert "scale" in _names(body, 2).scratch
    asking = _names(body, 6, at_head=False).scratch
    assert "scale" not in asking
    assert {"x", "spare"} <= asking
