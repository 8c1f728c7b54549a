"""What is measured: the vocabulary that probes write and detectors read.

A signal has a name, a scope and a meaning. Scopes are

* ``run``: one value for the whole model (scope name ``""``),
* ``optimizer``: one per optimizer (``"0"``, ``"1"``, in the order of their first step),
* ``parameter``: one per parameter tensor, by its qualified name (``"net.0.weight"``),
* ``module``: one per activation site, by the qualified name of its module; a function called
  inside a module's ``forward`` is named after it (``"net.relu"``, ``"net.relu#2"``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Scope = Literal["run", "optimizer", "parameter", "module"]


@dataclass(frozen=True, slots=True)
class Signal:
    """One measurable quantity."""

    name: str
    scope: Scope
    meaning: str


_ALL: Final = (
    # every step
    Signal("loss", "run", "training loss of the step: mean over its backward calls, loss scaling removed"),
    # at evaluation, per contiguous evaluation phase
    Signal("val_loss", "run", "mean loss over one evaluation phase"),
    Signal("val_accuracy", "run", "share of right predictions over one evaluation phase"),
    Signal("val_input_mean", "run", "mean of the first input of one evaluation phase"),
    Signal("val_input_std", "run", "standard deviation of that input"),
    Signal("train_eval_loss", "run", "mean loss over an evaluation phase on samples that were trained on"),
    Signal("train_eval_accuracy", "run", "share of right predictions over such a phase"),
    Signal("metric", "run", "the script's own figure, read from what it prints"),
    # sampled steps, whole run
    Signal("accuracy", "run", "share of right predictions in the training batch"),
    Signal("batch_size", "run", "samples in the training batch"),
    Signal("grad_norm", "run", "l2 norm of all gradients, as the optimizer applies them"),
    Signal("grad_norm_raw", "run", "l2 norm of all gradients before the script clipped them"),
    Signal("clip_limit", "run", "norm to which the script clips"),
    Signal("loss_scale", "run", "scale of the gradient scaler"),
    Signal("step_seconds", "run", "seconds from one optimizer step to the next"),
    Signal("input_min", "run", "smallest input value of the batch"),
    Signal("input_max", "run", "largest input value of the batch"),
    Signal("input_mean", "run", "mean of the input"),
    Signal("input_std", "run", "standard deviation of the input"),
    Signal("input_nonfinite", "run", "share of input values that are NaN or infinite"),
    Signal("input_scale_spread", "run", "largest per-feature scale over the median one (inputs of rank 2)"),
    Signal("input_constant", "run", "share of features that are the same in all samples of the batch"),
    Signal(
        "input_sample_std",
        "run",
        "standard deviation of the input over samples over its root mean square: 0 = all alike",
    ),
    Signal("input_outlier", "run", "largest distance from the median in interquartile ranges"),
    Signal(
        "input_feature_outlier",
        "run",
        "the same for rare values, each within its own feature (inputs of rank 2)",
    ),
    Signal("input_whole", "run", "share of input values that are whole numbers (inputs of rank 2)"),
    Signal("input_feature_far", "run", "the value that lies so far off"),
    Signal(
        "input_feature_alike", "run", "samples that have exactly this value, if nothing else comes near it"
    ),
    Signal(
        "input_interleaved",
        "run",
        "how much more alike the values of coloured pictures are as many places on, along rows and across them, as "
        "there are channels than nearer or farther ones, at the least: above 1 where colours lie side by side",
    ),
    Signal(
        "input_channels_alike",
        "run",
        "largest correlation, without its sign, of the changes along rows in the first channel with those in another",
    ),
    Signal("output_min", "run", "smallest value of what the loss was given as prediction"),
    Signal("output_max", "run", "largest value of what the loss was given as prediction"),
    Signal("output_mean", "run", "mean of the prediction"),
    Signal("output_std", "run", "standard deviation of the prediction"),
    Signal("output_sample_std", "run", "standard deviation over samples, root mean square over units"),
    Signal(
        "output_mass_error",
        "run",
        "how far the probabilities behind given log-probabilities are from summing to one over the classes",
    ),
    Signal(
        "output_confidence", "run", "mean probability of the class that is answered, under a cross-entropy"
    ),
    Signal(
        "views_alike_least",
        "run",
        "mean cosine of a model's outputs for different samples, of two whose directions are compared the lower one",
    ),
    Signal("views_alike_most", "run", "the same, the higher one"),
    Signal("output_share_min", "run", "smallest logit where those of every sample are made to sum to one"),
    Signal("output_share_max", "run", "largest of these"),
    Signal(
        "prediction_top_share",
        "run",
        "share of the class predicted most often in the batch, or in a few small ones",
    ),
    Signal("target_min", "run", "smallest target"),
    Signal("target_max", "run", "largest target"),
    Signal("target_mean", "run", "mean target"),
    Signal("target_std", "run", "standard deviation of the targets"),
    Signal(
        "target_beyond",
        "run",
        "share of the squared error that is left where answers are as near to the targets as their activation allows",
    ),
    Signal(
        "target_top_share", "run", "share of the most frequent class in the batch, or in a few small ones"
    ),
    Signal("target_classes", "run", "number of different target classes in the batch"),
    Signal("target_ignored", "run", "share of the targets of one class that the loss is told to leave out"),
    Signal("label_blank", "run", "share of the labels of a CTC loss that are its blank"),
    Signal("label_too_long", "run", "share of the samples with more labels than steps to align them with"),
    Signal(
        "weight_tilt",
        "run",
        "mean weight of the targets in the loss over that of the classes: 1 = no matter which",
    ),
    Signal("target_nonfinite", "run", "share of targets that are NaN or infinite"),
    Signal(
        "target_outlier", "run", "largest distance of a rare target from the median in interquartile ranges"
    ),
    Signal("target_iqr", "run", "interquartile range of the targets, root mean square over units"),
    Signal("baseline_loss", "run", "loss on this batch of the best constant prediction"),
    Signal("loss_over_call", "run", "the loss that is trained on, over what the loss function gave"),
    Signal(
        "class_loss_left",
        "run",
        "the one cross-entropy of a step with several losses, over that of the best constant prediction",
    ),
    Signal("class_loss_share", "run", "the same over the whole loss that is trained on"),
    Signal("other_loss_share", "run", "the largest of the losses beside it over that"),
    Signal("floor_share", "run", "share of that which targets that are no plain yes or no leave in any case"),
    # per optimizer
    Signal("lr", "optimizer", "learning rate of the group that trains most weights"),
    # sampled steps, per parameter
    Signal("grad_l2", "parameter", "l2 norm of the gradient, as the optimizer applies it"),
    Signal("grad_linf", "parameter", "largest absolute gradient entry"),
    Signal("grad_zero", "parameter", "share of gradient entries that are exactly zero"),
    Signal("weight_l2", "parameter", "l2 norm of the weights before the step"),
    Signal("update_ratio", "parameter", "norm of the step's change over the norm of the weights"),
    Signal(
        "update_lost",
        "parameter",
        "share of the squared gradient on entries of 16 bits that the step leaves exactly as they are",
    ),
    # sampled steps, per activation site
    Signal("act_mean", "module", "mean output"),
    Signal("act_std", "module", "standard deviation of the output"),
    Signal("act_linf", "module", "largest absolute output"),
    Signal("act_zero", "module", "share of output entries that are exactly zero"),
    Signal("act_dead", "module", "share of units that were zero for every sample seen in the last windows"),
    Signal("act_saturated", "module", "share of entries on the flat parts of a bounded activation"),
    Signal("act_nonfinite", "module", "share of output entries that are NaN or infinite"),
    Signal("fed_size", "module", "root mean square of what a layer is fed that nothing trained lies before"),
    Signal("fed_spread", "module", "largest scale of a feature of that over the median one (rank 2)"),
    Signal(
        "act_sample_std", "module", "standard deviation over samples over the root mean square: 0 = all alike"
    ),
)

#: Every signal by name.
SIGNALS: Final[dict[str, Signal]] = {signal.name: signal for signal in _ALL}

#: BTTackler's ten statistics; recorded per parameter as ``grad_<name>`` and ``weight_<name>`` on request.
TEN_STATISTICS: Final = (
    "mean", "var", "median", "q1", "q3", "min", "max", "skew", "kurtosis", "zero",
)  # fmt: skip
