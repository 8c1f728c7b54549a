"""The problems akeso knows: what each is, how it is recognised, what helps, and which causes which.

>>> PROBLEMS["vanishing-gradient"].title
'Vanishing gradient'
>>> sorted(causes_of("non-finite"))[:3]
['abnormal-data', 'exploding-gradient', 'improper-loss']
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from akeso.errors import BadInput


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem in plain words.

    ``root_rank`` says how near to the user's own code the problem lies: of two problems that were seen with
    the same certainty, the one with the lower rank is named first.
    """

    name: str
    title: str
    what: str
    how_recognised: str
    helps: tuple[str, ...]
    root_rank: int
    causes: tuple[str, ...] = ()


_ALL: Final = (
    Problem(
        "shape-broadcast",
        "Targets broadcast against outputs",
        "Outputs and targets have different shapes that happen to be compatible, so that every prediction is "
        "compared with every target and the model learns little but the mean.",
        "The shapes given to the loss differ and their combination is larger than either.",
        (
            "Give outputs and targets the same shape: `output.squeeze(-1)` or `target.unsqueeze(-1)`.",
            "Assert `output.shape == target.shape` before the loss.",
        ),
        0,
        (
            "constant-prediction",
            "slow-convergence",
            "unlearnable-labels",
            "vanishing-gradient",
            "dying-relu",
            "learning-rate-too-high",
            "oscillating-loss",
        ),
    ),
    Problem(
        "wrong-axis",
        "Axes mixed up",
        "The axes of a tensor are taken for others: a recurrent layer or an attention takes the samples of a batch for "
        "moments of one sequence, so that what is said of one sample comes from others, or a reshape stands where a "
        "transposition was meant, and every value ends up where another one belongs.",
        "A layer is given as many moments as there are samples with a target of their own, tokens follow each other "
        "along the axis that it takes for the batch, the gradient of one sample's answer reaches other samples, the "
        "same lengths come in another order after a reshape, the weights of an attention sum to one over another axis "
        "than it sums over, answers sum to one over the samples, or pictures are more alike as many values on as they "
        "have colours than at any other distance.",
        (
            "Pass `batch_first=True` to the layer where samples come first, or transpose what it is given.",
            "Where axes change places, use `transpose` or `permute`; `reshape` and `view` leave all values where they "
            "lie.",
            "Check that an answer does not change when the other samples of its batch do.",
        ),
        0,
        (
            "constant-prediction",
            "slow-convergence",
            "unlearnable-labels",
            "vanishing-gradient",
            "learning-rate-too-high",
            "learning-rate-too-low",
            "oscillating-loss",
            "overfitting",
        ),
    ),
    Problem(
        "sequence-leak",
        "Answers seen in advance",
        "A model of sequences is given the tokens that it is to say, because a causal mask is missing or because its "
        "targets are not one place further on. Its loss becomes next to nothing, and alone it can say nothing.",
        "The targets are the tokens that the model was given, and the gradient of an answer reaches the one that it is "
        "to be.",
        (
            "Mask the attention: `is_causal=True`, or a mask that is upper triangular above the diagonal.",
            "Give tokens `[:-1]` and take tokens `[1:]` for the targets; see whether the model shifts them itself.",
            "Let the model write a sequence by itself: its loss says nothing as long as it sees the answers.",
        ),
        0,
        ("data-leakage", "overfitting", "unlearnable-labels", "no-more-gain"),
    ),
    Problem(
        "wrong-places",
        "Places in a sequence mixed up",
        "A model of sequences is asked for other tokens than the next ones, as where targets are shifted twice; or it "
        "is not told where a token stands, as a transformer without an encoding of positions; or it answers from a "
        "place at which it has read nothing yet, or from what sequences are filled up with.",
        "The targets are the tokens two places on and more, and nothing asks for the next ones; or the same token gets "
        "the very same answer wherever it stands in a sample, while the targets differ; or no gradient of an answer "
        "reaches any token but the first, or but the padding, and hardly anything is learnt.",
        (
            "Shift targets once: see whether the model shifts them itself.",
            "Add an embedding or another encoding of positions before the first attention.",
            "Answer from the state after the last token where the sequence is read from its beginning on.",
        ),
        0,
        (
            "slow-convergence",
            "constant-prediction",
            "unlearnable-labels",
            "learning-rate-too-low",
            "no-more-gain",
        ),
    ),
    Problem(
        "missing-zero-grad",
        "Gradients are never cleared",
        "Gradients of earlier steps are still there when the next ones are added, so every step "
        "follows the sum "
        "of all gradients so far.",
        "Gradients were not zero at the first backward pass after an optimizer step.",
        (
            "Call `optimizer.zero_grad()` once per step, before `loss.backward()`.",
            "When accumulating on purpose, clear the gradients right after `optimizer.step()`.",
        ),
        1,
        (
            "exploding-gradient",
            "learning-rate-too-high",
            "oscillating-loss",
            "non-finite",
            "dying-relu",
            "saturated-activation",
            "vanishing-gradient",
            "constant-prediction",
            "slow-convergence",
            "unlearnable-labels",
        ),
    ),
    Problem(
        "parameters-not-trained",
        "Parameters that never change",
        "Parameters that are meant to learn are not in the optimizer, are cut off from the loss, get no "
        "gradient although their neighbours do, or are made anew in every pass; or what is evaluated is a copy that "
        "never learns.",
        "A trainable parameter got no gradient, or was never changed, while others were; a layer with weights was made "
        "inside of every pass; a derivative in the loss has no graph, or is 0 everywhere; or evaluations of a copy are "
        "the same every time.",
        (
            "Pass all parameters that should learn to the optimizer, also those made after it was created.",
            "Look for `.detach()`, `.data`, `.item()`, `torch.no_grad()` or NumPy on the way to the loss.",
            "Keep modules in `nn.ModuleList` or `nn.ModuleDict`: a model does not see into lists and dicts.",
            "Set `requires_grad_(False)` on what is frozen on purpose.",
        ),
        2,
        (
            "validation-mismatch",
            "slow-convergence",
            "constant-prediction",
            "unlearnable-labels",
            "vanishing-gradient",
        ),
    ),
    Problem(
        "wrong-mode",
        "Model in the wrong mode",
        "Dropout and batch normalisation behave differently in training and evaluation, and the "
        "model was in the "
        "wrong one of the two modes.",
        "An evaluation ran in training mode, or training steps in evaluation mode, with such layers present; or the "
        "running averages to evaluate with look back over more steps than the run has, and validation is far behind.",
        (
            "Call `model.eval()` before evaluating and `model.train()` before training goes on.",
            "Switch back at the start of every epoch, not once before the loop.",
        ),
        3,
        ("validation-mismatch", "overfitting", "slow-convergence", "oscillating-loss", "exploding-gradient"),
    ),
    Problem(
        "improper-output-activation",
        "Output activation does not fit",
        "The last activation does not fit the loss or cannot reach the targets: a second softmax before "
        "cross-entropy, a sigmoid for unbounded values, a ReLU before logits, a softmax over the wrong axis.",
        "What the loss was given lies in a range in which the loss cannot become small, or does not sum to one over "
        "the classes where it should.",
        (
            "Give raw logits to `cross_entropy` and `binary_cross_entropy_with_logits`.",
            "Use no activation on the output of a regression, or scale the targets into its range.",
            "Give `nll_loss` the output of `log_softmax`, one output unit a sigmoid instead of a softmax.",
        ),
        4,
        (
            "slow-convergence",
            "constant-prediction",
            "unlearnable-labels",
            "vanishing-gradient",
            "dying-relu",
            "saturated-activation",
            "non-finite",
            "oscillating-loss",
            "learning-rate-too-low",
            "learning-rate-too-high",
            "exploding-gradient",
            "overfitting",
            "class-imbalance",
        ),
    ),
    Problem(
        "improper-loss",
        "Loss does not fit the task",
        "The loss measures something else than the task needs, or is given targets it is not made for.",
        "The kind of targets does not go with the loss: class indices under a squared error, values outside "
        "[0, 1] under a binary cross-entropy, one output unit under a cross-entropy over classes. Or the loss "
        "leaves out a whole class, smooths the right one away, takes rates for their logarithms, or sees directions "
        "alone where the script measures distances.",
        (
            "One of K classes: `cross_entropy` on logits. Yes or no: `binary_cross_entropy_with_logits`.",
            "Values: `mse_loss`, `l1_loss` or `huber_loss`.",
        ),
        4,
        (
            "slow-convergence",
            "constant-prediction",
            "unlearnable-labels",
            "vanishing-gradient",
            "exploding-gradient",
            "dying-relu",
            "non-finite",
            "oscillating-loss",
            "learning-rate-too-low",
            "learning-rate-too-high",
            "saturated-activation",
            "overfitting",
            "class-imbalance",
        ),
    ),
    Problem(
        "abnormal-data",
        "Data not prepared",
        "Inputs or targets are not prepared: raw pixels, features or targets on wildly different scales, "
        "outliers, codes for missing values, constants, samples that hardly differ, samples sorted by class.",
        "The ranges of the batches, also of single features, together with a training that suffers from them.",
        (
            "Standardise inputs with mean and deviation of the training set (pixels: divide by 255).",
            "Standardise regression targets, and undo it when predicting.",
            "Impute or drop missing values; clip outliers.",
            "Shuffle the training set (`DataLoader(…, shuffle=True)`).",
        ),
        5,
        (
            "exploding-gradient",
            "vanishing-gradient",
            "non-finite",
            "dying-relu",
            "saturated-activation",
            "oscillating-loss",
            "learning-rate-too-high",
            "learning-rate-too-low",
            "constant-prediction",
            "slow-convergence",
            "unlearnable-labels",
            "overfitting",
        ),
    ),
    Problem(
        "poor-initialisation",
        "Poor initial weights",
        "Initial weights are all alike, far too small or far too large for the width of their layers, or the biases "
        "of recurrent layers keep a gate closed.",
        "The deviation of the initial weights against 1/sqrt(inputs of the layer), and the mean of the biases of "
        "gates, with a training that suffers.",
        (
            "Use the layers' default initialiser, or He (ReLU) and Glorot (tanh, sigmoid) initialisers.",
            "Never fill weight matrices with one constant; biases may be zero.",
        ),
        6,
        (
            "vanishing-gradient",
            "exploding-gradient",
            "dying-relu",
            "saturated-activation",
            "non-finite",
            "oscillating-loss",
            "learning-rate-too-high",
            "learning-rate-too-low",
            "constant-prediction",
            "slow-convergence",
            "unlearnable-labels",
        ),
    ),
    Problem(
        "over-regularised",
        "Regularisation drowns the signal",
        "Weight decay, a penalty or dropout is so strong that the weights shrink instead of learning.",
        "Weights shrink or the penalty dominates while the loss stays near that of a constant prediction; or the loss "
        "stays where weight decay cancels the gradients of all data, and growing weights would lower it much further; "
        "or the latent values of an autoencoder are drawn as their prior has them, whatever is put in.",
        (
            "Lower weight decay (1e-4 … 1e-2) or the penalty's factor; dropout at most 0.5.",
            "Exclude biases and normalisation layers from weight decay.",
        ),
        7,
        (
            "learning-rate-too-high",
            "vanishing-gradient",
            "constant-prediction",
            "slow-convergence",
            "dying-relu",
            "unlearnable-labels",
            "oscillating-loss",
            "exploding-gradient",
        ),
    ),
    Problem(
        "learning-rate-too-high",
        "Learning rate too high",
        "Steps are so long that they overshoot: the loss rises, jumps about or diverges.",
        "Large changes of the weights per step together with a loss that does not fall from there on.",
        (
            "Divide the learning rate by 10 until the loss falls smoothly.",
            "Warm the learning rate up over the first steps; clip the gradient norm.",
        ),
        8,
        (
            "exploding-gradient",
            "oscillating-loss",
            "dying-relu",
            "saturated-activation",
            "non-finite",
            "vanishing-gradient",
            "constant-prediction",
            "slow-convergence",
            "unlearnable-labels",
            "overfitting",
        ),
    ),
    Problem(
        "exploding-gradient",
        "Exploding gradient",
        "Gradients grow from layer to layer on their way back, so that the first layers are thrown about.",
        "Gradients of early layers are many times those of late ones from the first steps on, or grow "
        "without bound, and the training suffers.",
        (
            "Clip the gradient norm (`torch.nn.utils.clip_grad_norm_(…, 1.0)`).",
            "Normalise activations (batch or layer normalisation), use residual connections.",
            "Use the default initialiser; a bounded or smoother activation in recurrent layers.",
        ),
        9,
        (
            "non-finite",
            "dying-relu",
            "saturated-activation",
            "oscillating-loss",
            "constant-prediction",
            "slow-convergence",
            "unlearnable-labels",
        ),
    ),
    Problem(
        "vanishing-gradient",
        "Vanishing gradient",
        "The signal or its gradient shrinks from layer to layer until early layers no longer learn.",
        "Gradients of early layers are a tiny share of those of late ones, or the activations of "
        "late layers no "
        "longer depend on the sample, and the loss does not get away from that of a constant prediction.",
        (
            "Use ReLU, LeakyReLU, SELU or GELU instead of sigmoid and tanh.",
            "Add batch or layer normalisation, or residual connections; use fewer layers.",
            "Use He or Glorot initialisation.",
        ),
        12,
        ("constant-prediction", "slow-convergence", "unlearnable-labels", "learning-rate-too-low"),
    ),
    Problem(
        "dying-relu",
        "Dying ReLU",
        "Many units give zero for every sample; they get no gradient and never come back.",
        "The share of units that were zero for all samples over many batches, in layers where that can "
        "happen, while the training suffers.",
        (
            "Lower the learning rate; warm it up.",
            "Use LeakyReLU, ELU or GELU; He initialisation with zero or small positive biases.",
            "Add batch normalisation before the activation.",
        ),
        10,
        ("constant-prediction", "slow-convergence", "vanishing-gradient", "unlearnable-labels"),
    ),
    Problem(
        "saturated-activation",
        "Saturated activations",
        "Most units of a sigmoid or tanh sit on its flat parts, where the gradient is nearly zero.",
        "The share of activations on the flat parts, while the training suffers.",
        (
            "Scale the inputs and the initial weights down; normalise before the activation.",
            "Use a non-saturating activation.",
        ),
        11,
        ("vanishing-gradient", "constant-prediction", "slow-convergence", "unlearnable-labels"),
    ),
    Problem(
        "learning-rate-too-low",
        "Learning rate too low",
        "Steps are so short that the weights hardly change in the whole run.",
        "The summed change of the weights over the run is a small share of the weights, and the loss falls "
        "steadily but far too slowly, or not at all; or a schedule has stopped them while the loss was falling.",
        (
            "Multiply the learning rate by 10 until the loss falls quickly.",
            "Let a schedule begin later: keep the rate for as long as the loss falls; one that counts epochs is to be "
            "stepped once an epoch, not with every batch.",
            "Use an adaptive optimizer (Adam 1e-3) or momentum.",
        ),
        13,
        ("slow-convergence", "constant-prediction", "unlearnable-labels", "class-imbalance"),
    ),
    Problem(
        "class-imbalance",
        "One class drowns the others",
        "Nearly all samples belong to one class, and the model answers with it whatever it is shown.",
        "The share of the most frequent class, and predictions that have collapsed on it.",
        (
            "Weight the classes in the loss (`weight=`, `pos_weight=`) or sample them evenly.",
            "Judge by balanced accuracy, F1 or average precision instead of accuracy.",
        ),
        14,
        ("constant-prediction", "slow-convergence", "unlearnable-labels"),
    ),
    Problem(
        "non-finite",
        "Values that are not finite",
        "NaN or infinity in the loss, the gradients, the weights or the activations.",
        "Seen in the step in which it appeared, with the first module and, near the loss, the function.",
        (
            "Look at what precedes: unscaled inputs, a learning rate too high, log or division "
            "without epsilon.",
            "Clip the gradient norm; keep loss and softmax in float32.",
        ),
        15,
        (
            "constant-prediction",
            "slow-convergence",
            "oscillating-loss",
            "unlearnable-labels",
            "no-more-gain",
        ),
    ),
    Problem(
        "unlearnable-labels",
        "Labels carry no signal",
        "Inputs and labels do not belong together: shuffled, mismatched or random labels.",
        "The loss stays at that of a constant prediction, or only training samples are memorised, or every accuracy "
        "that is printed is at chance, while the network itself looks well.",
        (
            "Check that inputs and labels are paired: look at samples after all shuffling and batching.",
            "See whether a simple model beats a constant prediction on held-out data.",
        ),
        17,
        ("constant-prediction", "slow-convergence", "overfitting", "no-more-gain"),
    ),
    Problem(
        "oscillating-loss",
        "Oscillating loss",
        "The loss swings without settling.",
        "Swings of the loss that are large against its level, are not explained by the size of the batch "
        "and do not die down; validation that jumps from one time to the next; steps that are long to the very end; "
        "betas of Adam in the wrong order.",
        (
            "Lower the learning rate or let it decay; use momentum 0.9 or Adam, with betas (0.9, 0.999).",
            "Use larger batches; shuffle the training data.",
        ),
        16,
        ("slow-convergence", "constant-prediction", "unlearnable-labels"),
    ),
    Problem(
        "constant-prediction",
        "The model answers the same to everything",
        "The output does not depend on the input.",
        "The output does not vary between samples, and the loss is that of the best constant.",
        (
            "Look for what cuts the input off: dead or saturated units, a detached tensor, a wrong shape.",
            "See whether the model can learn one batch by heart.",
        ),
        18,
        ("slow-convergence",),
    ),
    Problem(
        "slow-convergence",
        "Slow convergence",
        "The loss falls too slowly to get anywhere in the planned steps, or not at all.",
        "The progress so far and its pace against the distance that is left; a mean loss that is divided once more.",
        (
            "Raise the learning rate or use an adaptive optimizer; add momentum.",
            "Give `backward` the mean loss as it is, divided by nothing but the batches of one step.",
            "Normalise inputs and activations; train longer when the loss still falls steadily.",
            "In stacks of ten layers and more: norms, and connections that skip layers.",
        ),
        19,
        (),
    ),
    Problem(
        "overfitting",
        "Overfitting",
        "The model goes on to fit its training samples while it gets worse on others.",
        "Validation got clearly worse than its best while the training loss still fell.",
        (
            "Stop at the best validation result, and keep that model.",
            "More data, augmentation, weight decay, dropout or a smaller model.",
        ),
        20,
        (),
    ),
    Problem(
        "validation-mismatch",
        "Validation asks for something else",
        "The model is right about samples that it meets for the first time in training, and validation finds it no "
        "better than guessing: it is evaluated on data prepared in another way, with other labels, or in another state "
        "than it is trained in.",
        "Training accuracy during the first pass over the data is far above chance, validation accuracy never is.",
        (
            "Prepare validation data by the very code that prepares the training data: scale, order of axes, "
            "vocabulary, order of classes.",
            "See whether batch normalisation has caught up: `momentum` times the steps so far must be well above 1.",
            "An averaged copy (EMA) must have had the time to leave its start: `1 / (1 - decay)` steps and more.",
            "Evaluate a batch of training data in the same way: what comes of it tells model and data apart.",
        ),
        4,
        ("unlearnable-labels", "overfitting"),
    ),
    Problem(
        "data-leakage",
        "Results too good to be true",
        "What should be predicted may be contained in the input, or validation samples in the training set.",
        "Validation is as good as perfect from the start, or clearly better than training without a reason.",
        (
            "Check that the target is not among the inputs and that no sample is in both sets.",
            "Split before augmenting, windowing or normalising.",
        ),
        17,
        ("overfitting",),
    ),
    Problem(
        "no-more-gain",
        "No more gain",
        "Training goes on but nothing gets better any more. This is harmless.",
        "The loss has not improved beyond its noise over the last part of the run.",
        ("Stop here, or lower the learning rate and go on.",),
        22,
        (),
    ),
)

#: Every problem by name.
PROBLEMS: Final[dict[str, Problem]] = {problem.name: problem for problem in _ALL}


def causes_of(name: str) -> frozenset[str]:
    """The problems that may directly cause the named one."""
    if name not in PROBLEMS:
        raise BadInput(
            f"there is no problem named {name!r}; the known ones are: {', '.join(sorted(PROBLEMS))}"
        )
    return frozenset(problem.name for problem in _ALL if name in problem.causes)
