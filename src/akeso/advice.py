"""What helps against a problem, in the words of the framework that trains."""

from __future__ import annotations

from typing import Final

from akeso.catalogue import PROBLEMS

#: Where Keras calls it something else; what is not listed is said alike.
_KERAS: Final = {
    "shape-broadcast": (
        "Give `y` the shape of the model's output: `y[:, None]` for a last `Dense(1)`.",
        "Compare `model.output_shape` with the shape of a batch of targets.",
    ),
    "parameters-not-trained": (
        "Look at `trainable` of the layers: what is unfrozen later needs another `compile`.",
        "Make layers in `__init__` or `build` and keep them as attributes; call each of them in `call`.",
        "Look for `stop_gradient` and NumPy on the way to the loss.",
    ),
    "wrong-mode": (
        "Pass `training` on in `call`, and call the model with `training=True` in a loop of your own.",
        "Leave `training=True` out where the model is evaluated or predicts.",
    ),
    "improper-output-activation": (
        "Let loss and last layer agree: `from_logits=True` and no activation, or `softmax`/`sigmoid` without it.",
        "Use no activation on the output of a regression, or scale the targets into its range.",
        "Give one output unit a sigmoid instead of a softmax.",
    ),
    "improper-loss": (
        "One of K classes: `sparse_categorical_crossentropy`, one-hot `categorical_crossentropy`. "
        "Yes or no: `binary_crossentropy`.",
        "Values: `mse`, `mae` or `huber`.",
    ),
    "abnormal-data": (
        "Standardise inputs, for one with a `Normalization` layer adapted to the training set "
        "(pixels: `Rescaling(1 / 255)`).",
        "Standardise regression targets, and undo it when predicting.",
        "Impute or drop missing values; clip outliers.",
        "Shuffle the training set (`fit` does so with arrays, a `tf.data.Dataset` needs `.shuffle(…)`).",
    ),
    "exploding-gradient": (
        "Clip the gradient norm (`clipnorm=1.0` or `global_clipnorm=1.0` of the optimizer).",
        "Normalise activations (`BatchNormalization`, `LayerNormalization`), use residual connections.",
        "Use the default initialiser; a bounded or smoother activation in recurrent layers.",
    ),
    "class-imbalance": (
        "Weight the classes (`fit(…, class_weight=…)`) or sample them evenly.",
        "Judge by balanced accuracy, F1 or average precision instead of accuracy.",
    ),
    "slow-convergence": (
        "Raise the learning rate or use an adaptive optimizer; add momentum.",
        "Normalise inputs and activations; train longer when the loss still falls steadily.",
        "In stacks of ten layers and more: norms, and connections that skip layers.",
    ),
    "overfitting": (
        "Stop at the best validation result, and keep that model "
        "(`EarlyStopping(restore_best_weights=True)`).",
        "More data, augmentation, weight decay, dropout or a smaller model.",
    ),
}


def advice(problem: str, framework: str = "") -> tuple[str, ...]:
    """What helps against a problem; nothing for one that is not in the catalogue.

    >>> advice("class-imbalance", "keras")[0]
    'Weight the classes (`fit(…, class_weight=…)`) or sample them evenly.'
    >>> advice("no-more-gain", "keras") == advice("no-more-gain")
    True
    """
    known = PROBLEMS.get(problem)
    if known is None:
        return ()
    return _KERAS.get(problem, known.helps) if framework == "keras" else known.helps
