"""The benchmark of small searches that train for real."""

from __future__ import annotations

from benchmarks.search.small import SIZE, search


def test_what_an_ended_trial_would_have_come_to_is_what_it_comes_to_without_akeso() -> None:
    plain, ours = search("random", "none", 1, 6), search("random", "akeso", 1, 5)
    assert any(trial.verdict for trial in ours)
    for alone, watched in zip(plain, ours, strict=False):
        assert watched.would == alone.value
        assert watched.epochs == SIZE.epochs or watched.verdict
    assert ours[-1].seconds == sum(trial.epochs for trial in ours)
    assert ours[-1].seconds >= 5 * SIZE.epochs > ours[-2].seconds
