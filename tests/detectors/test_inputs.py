"""What goes in: outliers, scales, samples that hardly differ."""

from __future__ import annotations

from dataclasses import replace

from akeso.detectors.testing import Sketch, falling, flat
from akeso.examination import examine
from tests.detectors.sketches import CHANCE, LEARNS, first


def test_outliers_spoil_the_averages_of_a_normalisation_too() -> None:
    def judged(**run: float) -> str | None:
        figures = {"input_mean": -15.0, "input_std": 124.0, "input_min": -999.0, "input_max": 1.2, **run}
        history = Sketch(run=figures, loss=flat(2.3), accuracy=flat(0.1)).history()
        norm = replace(history.layers[1], kind="BatchNorm1d", role="norm")
        history.layers[1] = norm
        return next((d.problem for d in examine(history).diagnoses if d.severity != "info"), None)

    assert judged(input_outlier=900.0) == "abnormal-data"  # the same value again and again
    assert judged(input_outlier=30.0) != "abnormal-data"
    # Bright parts of dark pictures are far from the median and many.
    dark = {"input_mean": 0.13, "input_std": 0.3, "input_min": 0.0, "input_max": 1.0}
    assert judged(input_outlier=4e3, **dark) != "abnormal-data"


def test_dark_pictures_have_no_outliers() -> None:
    run = {"input_mean": 0.13, "input_std": 0.28, "input_min": 0.0, "input_max": 1.0, "input_outlier": 4e3}
    assert first(Sketch(run=run, loss=falling(2.3, 1.5), accuracy=flat(0.3))) is None
    run = {**run, "input_std": 50.0, "input_max": 6.5e4}
    assert first(Sketch(run=run, loss=falling(2.3, 1.5), accuracy=flat(0.3))) == "abnormal-data"


def test_numbers_beside_an_embedding_are_no_ids() -> None:
    def judged(whole: float) -> str | None:
        figures = {"input_mean": 9e3, "input_std": 3e4, "input_whole": whole}
        history = Sketch(run=figures, loss=flat(2.3), accuracy=flat(0.1)).history()
        history.facts["input_kind"] = "values"
        history.layers[0] = replace(history.layers[0], kind="Embedding", role="embedding")
        return next((d.problem for d in examine(history).diagnoses if d.severity != "info"), None)

    assert judged(0.5) == "abnormal-data"
    assert judged(1.0) != "abnormal-data"


def test_samples_that_hardly_differ_are_not_prepared() -> None:
    run = {"input_mean": -2.0, "input_std": 0.13, "input_sample_std": 0.002}
    assert first(Sketch(run=run, noise=0.005, **CHANCE)) == "abnormal-data"
    assert first(Sketch(run=run, loss=LEARNS)) is None
    assert first(Sketch(run={**run, "input_sample_std": 0.05}, noise=0.005, **CHANCE)) == "unlearnable-labels"


def test_data_out_of_scale_may_show_its_harm_in_validation_alone() -> None:
    mixed = Sketch(
        loss=falling(2.3, 0.55),
        accuracy=lambda s: 0.1 + 0.65 * s,
        run={"input_mean": 16.0, "input_std": 57.0},
        validation=falling(2.3, 1.4),
        validation_accuracy=lambda s: 0.3 + 0.25 * s,
    )
    assert first(mixed) == "abnormal-data"
    assert first(replace(mixed, run={})) is None
    assert first(replace(mixed, validation=falling(2.3, 0.5), validation_accuracy=flat(0.8))) is None
    # What is learned by heart is overfitting, whatever the scale.
    by_heart = replace(mixed, loss=falling(2.3, 0.01), accuracy=falling(0.1, 1.0))
    assert first(by_heart) != "abnormal-data"


def test_data_out_of_scale_is_named_where_no_gradient_is_left_whatever_the_loss_says() -> None:
    """A loss that is weighted by rare classes lies far below a constant's from the first step on."""
    sketch = Sketch(
        loss=flat(0.05), baseline=2.3, accuracy=flat(0.98), run={"input_std": 3e3, "input_max": 2e4}
    )
    assert first(sketch) != "abnormal-data"
    assert first(replace(sketch, gradient=lambda index: 0.0)) == "abnormal-data"
