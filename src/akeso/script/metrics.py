"""Reading metrics from printed lines: what a script says of itself.

>>> printed_metrics("Epoch 3/10 | train loss 0.412 acc 0.81 | val loss 0.455, acc 79.5%")
[('train_loss', 0.412), ('train_accuracy', 0.81), ('val_loss', 0.455), ('val_accuracy', 0.795)]
>>> printed_metrics("epoch 3/10, 12.5 s, lr=0.01")
[]
"""

from __future__ import annotations

import itertools
import re
from typing import Final

from akeso.errors import BadInput

_SPLITS: Final = {
    "train": "train", "training": "train", "tr": "train",
    "val": "val", "valid": "val", "validation": "val", "eval": "val", "evaluation": "val", "dev": "val",
    "test": "test", "testing": "test", "holdout": "test", "heldout": "test",
}  # fmt: skip
_QUANTITIES: Final = {
    "acc": "accuracy", "accuracy": "accuracy", "loss": "loss", "nll": "loss", "f1": "f1", "auc": "auc",
    "auroc": "auc", "auprc": "auprc", "mse": "mse", "rmse": "rmse", "mae": "mae", "perplexity": "perplexity",
    "ppl": "perplexity", "bleu": "bleu", "dice": "dice", "iou": "iou", "miou": "iou",
    "error": "error", "err": "error", "precision": "precision", "recall": "recall", "r2": "r2",
    "score": "score", "wer": "wer", "cer": "cer", "ser": "ser", "hr": "hits",
    "jaccard": "iou", "mape": "mape", "smape": "mape",
    "mcc": "mcc", "kappa": "kappa", "psnr": "psnr", "ssim": "ssim", "ndcg": "ndcg", "mrr": "mrr",
    "spearman": "correlation", "pearson": "correlation", "logloss": "loss", "pinball": "pinball", "crps": "crps",
    "brier": "brier", "mase": "mase", "rmsle": "rmsle", "nrmse": "nrmse", "wape": "wape",
    "rse": "rse", "rrse": "rrse", "nmse": "nmse", "nmae": "nmae", "msle": "msle", "mspe": "mspe", "rmspe": "rmspe",
    "bpc": "bpc", "bpd": "bpd",
    "concordance": "concordance", "cindex": "concordance", "reward": "reward", "rewards": "reward", "rew": "reward",
    "return": "reward", "returns": "reward", "successrate": "reward", "winrate": "reward", "episodescore": "reward",
    "deviance": "deviance", "rouge": "rouge", "chrf": "chrf", "hits": "hits", "gini": "gini", "map": "map",
}  # fmt: skip
#: Words that also mean something else: they count only after a split ("val error"), or where what stands around them
#: says it, as in "error rate", "recall@5" and "WER".
_AMBIGUOUS: Final = {
    "error",
    "precision",
    "recall",
    "score",
    "r2",
    "wer",
    "cer",
    "ser",
    "hits",
    "map",
    "deviance",
    "gini",
}
#: Of how many first answers a figure is, or from which share on something counts as found: "recall@5", "mAP@0.5:0.95".
_AT_WHAT: Final = r"\s?@\s?(?:0?\.\d+(?:[:-]0?\.\d+)?|\d+)"
_AT: Final = re.compile(_AT_WHAT)
_RATE: Final = re.compile(r"[\s_-]*rate\b", re.IGNORECASE)
#: What stands before "reward" where it is none that a training is for: of pairs that are compared, or of what is new.
_NO_AIM: Final = re.compile(
    r"\b(?:chosen|rejected|preferred|intrinsic|novelty|curiosity|exploration|target|std|min|max)[\s_/-]$",
    re.IGNORECASE,
)
#: A number that is given to a name: "return: 12.5".
_GIVEN: Final = re.compile(r"\s*[:=]")
#: Those that are short for a figure, and those that are no figures but of the first so many answers.
_SHORT: Final = {"wer", "cer", "ser", "map", "r2"}
_OF_THE_FIRST: Final = {"hr"}
#: Shares, whose percentages are brought to 0..1.
SHARES: Final = {"accuracy", "f1", "auc", "auprc", "precision", "recall", "dice", "iou", "error"}
#: Those that are shares and nothing else: an error may have a unit of its own, and one beyond 1 is no percentage unless
#: that is written.
_NOTHING_ELSE: Final = SHARES - {"error"}
#: What stands right before the colon when the number is no metric: "best loss at epoch: 3".
_NO_METRIC: Final = {
    "epoch", "step", "iteration", "iter", "batch", "time", "lr", "size", "seed", "eta", "patience", "at",
    "rate", "count", "weight", "scale",
}  # fmt: skip
#: What stands beside a word for held-out data and is no figure of how good a model is on it.
_NO_FIGURE: Final = _NO_METRIC | {
    "set",
    "split",
    "data",
    "dataset",
    "sample",
    "samples",
    "images",
    "rows",
    "batches",
    "examples",
    "items",
    "loader",
    "fraction",
    "ratio",
    "share",
    "every",
    "interval",
    "freq",
    "frequency",
    "best",
    "mean",
    "std",
    "n",
    "num",
    "len",
    "seconds",
    "secs",
    "sec",
    "s",
    "ms",
    "it",
    "shape",
    "in",
    "on",
    "after",
    "for",
    "to",
    "and",
    "with",
    "took",
    "of",
}
#: Between a word for held-out data and the name of a figure.
_BESIDE: Final = re.compile(r"[\s_:/.\-\[\]()|>]{1,4}$")
#: What is one word here although it is written as several: "held-out", "c-index", "success rate", "R^2".
_ONE_WORD: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), word)
    for pattern, word in (
        (r"\bheld[\s_-]out\b", "heldout"),
        (r"\bc[\s_-]index\b", "cindex"),
        (r"\b(success|win)[\s_-]rate\b", r"\1rate"),
        (r"\b(?:pr|prc|precision[\s_-]recall)[\s_-]auc\b|\bauc[\s_-]?(?:pr|prc)\b", "auprc"),
        (r"\b(episode|episodic)[\s_-]score\b", "episodescore"),
        (r"\bR(?:\^2|\*\*2|²|[\s_-]?squared\b)", "R2"),
        (r"\btop[\s_-]?1\b(?=\s*(?:[:=]|\d+\.\d))", "accuracy"),  # which "top-1 error" is not
    )
)
#: What stands before "return" where it is one that an agent gets.
_OF_AN_AGENT: Final = re.compile(
    r"\b(?:episode|episodic|ep|mean|avg|average|total|cumulative|discounted|undiscounted|eval)[\s_-]$",
    re.IGNORECASE,
)

_NUMBER: Final = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?)|nan|NaN|-?inf"
)
#: What may stand before an amount of money.
_CURRENCY: Final = r"(?:[$€£]\s?)?"
_WORD: Final = re.compile(r"[A-Za-z]+\d?")
# A separator, or nothing but blanks; quotes and brackets as in printed dictionaries and "accuracy (%): 91".
_DIRECT: Final = re.compile(
    rf"""(?:(?i:(?<=error)|(?<=err))[\s_-]*(?i:rate)\b)?
    (?:{_AT_WHAT})?\s*[)\]]?(?:[\s_-]*(?:score|top-?\d+))?\s*(?P<unit>[(\[]\s*%\s*[)\]])?['"]?\s*(?P<sep>[:=]|\bis\b|\bof\b)?\s*['"]?
    (?:tensor\(|np\.float\d+\()?{_CURRENCY}(?P<value>{_NUMBER})(?P<rest>.{{0,14}})""",
    re.VERBOSE,
)
_FAR: Final = re.compile(
    rf"\s+(?:of|on|after|for|at|over)\b(?P<between>[^:=]{{0,60}})[:=]\s*{_CURRENCY}(?P<value>{_NUMBER})(?P<rest>.{{0,14}})"
)
#: "score(test)=0.9", "RMSE train 0.5": of which data a figure is said behind its name, right before the number.
_SPLIT_BEHIND: Final = re.compile(
    rf"[\s:=_/|-]*[(\[]?\s*({'|'.join(_SPLITS)})\b\s*[)\]]?\s*[:=]?\s*(?={_CURRENCY}(?:{_NUMBER}))",
    re.IGNORECASE,
)
_TIME: Final = re.compile(
    r"\s*(?:s|ms|us|sec|secs|seconds?|min|mins|minutes?|h|hours?|it/s|s/it|samples/s)\b"
)
_FRACTION: Final = re.compile(r"\s*/\s*(\d+)(?![.\d])")


def printed_metrics(line: str) -> list[tuple[str, float]]:
    """The metrics that one printed line holds, as name and value, in order."""
    if not any(character.isdigit() for character in line) and "nan" not in line.lower():
        return []
    line = _joined(line)
    found: list[tuple[str, float]] = []
    split = shared = ""
    read_until = 0
    for word in _words(line):
        text = word[0].lower()
        if text in _SPLITS:
            split = _SPLITS[text]
            # "RMSE train 0.5, test 0.6": the name is said once for both.
            value = _value_after(line, word[2], shared) if shared and word[1] >= read_until else None
            if value is not None:
                found.append((f"{split}_{shared}", value[0]))
                read_until = value[1]
            continue
        quantity = _QUANTITIES.get(text)
        if quantity is None or word[1] < read_until:
            continue
        behind = _SPLIT_BEHIND.match(line, word[2])
        shared = quantity if behind and _is_meant(line, word, quantity, behind[1]) else ""
        if shared:
            continue  # what comes next says of which data
        if not _is_meant(line, word, quantity, split):
            continue
        value = _value_after(line, word[2], quantity)
        if value is not None:
            between = (_SPLITS.get(part[0].lower(), "") for part in _words(line[word[2] : value[1]]))
            of = split or next(filter(None, between), "")  # "accuracy on the 10000 test images: 91.2 %"
            name = f"{of}_{quantity}" if of else quantity
            # Of several such figures in a line, as recall@1 and recall@5, one is enough; mixed they say nothing.
            one_enough = quantity == "reward" or _AT.match(line, word[2])
            if not (one_enough and any(name == known for known, _ in found)):
                found.append((name, value[0]))
            read_until = value[1]
    return found


def unknown_figures(line: str) -> list[tuple[str, float]]:
    """Figures of held-out data whose name says nothing: a word right between one for such data and a number.

    >>> unknown_figures("epoch 3 | val zeal 0.123 | lr 0.1")
    [('val_zeal', 0.123)]
    """
    if not any(character.isdigit() for character in line):
        return []
    line = _joined(line)
    words, found = _words(line), []
    for (split, _, end), (name, start, last) in itertools.pairwise(words):
        of, label = _SPLITS.get(split.lower(), "train"), name.lower()
        if of == "train" or label in _SPLITS or label in _QUANTITIES or label in _NO_FIGURE:
            continue
        value = _value_after(line, last, label) if _BESIDE.match(line[end:start]) else None
        if value is not None:
            found.append((f"{of}_{label}", value[0]))
    return found


def _joined(line: str) -> str:
    """The line with what is written in signs or in several words as one word each."""
    for pattern, word in _ONE_WORD:
        line = pattern.sub(word, line)
    return line


def _is_meant(line: str, word: tuple[str, int, int], quantity: str, split: str) -> bool:
    """Whether a word that may also mean something else stands for a figure here."""
    text, end = word[0], word[2]
    if _AT.match(line, end):
        return True
    if quantity == "reward" and _NO_AIM.search(line[: word[1]]):
        return False
    if text.lower().startswith("return"):
        return bool(_OF_AN_AGENT.search(line[: word[1]]) or _GIVEN.match(line, end))
    if text.lower() in _OF_THE_FIRST:
        return False
    if quantity not in _AMBIGUOUS or split:
        return True
    if quantity == "error":
        return bool(_RATE.match(line, end))
    return quantity in _SHORT and text != text.lower()


def _words(line: str) -> list[tuple[str, int, int]]:
    """Words with their places; ``val_acc``, ``valAcc`` and ``val/acc`` are two words each."""
    words = []
    for match in _WORD.finditer(line):
        start = match.start()
        if match.group().lower() in _QUANTITIES:  # "IoU", "mIoU"
            words.append((match.group(), start, match.end()))
            continue
        for part in re.finditer(r"[A-Z]*[a-z]+\d?|[A-Z]+\d?", match.group()):
            words.append((part.group(), start + part.start(), start + part.end()))
    return words


def _value_after(line: str, position: int, quantity: str) -> tuple[float, int] | None:
    match = _DIRECT.match(line, position)
    separated = True
    if match is not None:
        separated = bool(match["sep"])
    else:
        match = _FAR.match(line, position)
        if match is None:
            return None
        before = _WORD.findall(match["between"])
        if before and before[-1].lower() in _NO_METRIC and not re.search(r"\d\s*$", match["between"]):
            return None
    text, rest = match["value"], match["rest"]
    percent = rest.lstrip().startswith("%") or bool(match.groupdict().get("unit"))
    fraction = _FRACTION.match(rest)
    if fraction and quantity == "accuracy" and text.isdigit() and int(text) <= int(fraction[1]) > 0:
        return int(text) / int(fraction[1]), match.end("value")
    if fraction or _TIME.match(rest) or re.match(r"\.\d|\w", rest):
        return None  # "3/10", a time, a version, a word that only begins with digits
    if not separated and not percent and text.lstrip("+-").replace(",", "").isdigit():
        return None  # "loss 3": a count of something rather than a metric
    value = float(text.replace(",", ""))
    if quantity in SHARES and percent:
        value /= 100
    return value, match.end("value")


class PrintedMetrics:
    """All metrics printed during a run, a bounded number of values each."""

    LABELS: Final = 32
    VALUES: Final = 512
    REPEATED: Final = 3

    def __init__(self) -> None:
        self._values: dict[str, list[tuple[int, float]]] = {}
        self._others: dict[str, list[tuple[int, float]]] = {}
        self._heard = 0
        self._worth_telling = 4

    def hear(self, line: str, step: int) -> bool:
        """Take in one printed line; whether so much is new that it is worth recording."""
        for label, value in printed_metrics(line):
            self._heard += 1
            self._keep(self._values, label, step, value)
        for label, value in unknown_figures(line):
            self._keep(self._others, label, step, value)
        if self._heard < self._worth_telling:
            return False
        self._worth_telling = 2 * self._heard
        return True

    def _keep(self, kept: dict[str, list[tuple[int, float]]], label: str, step: int, value: float) -> None:
        if label not in kept and len(kept) >= self.LABELS:
            return
        values = kept.setdefault(label, [])
        values.append((step, value))
        if len(values) > self.VALUES:
            del values[1::2]

    def others(self) -> dict[str, list[list[float]]]:
        """Step and value of held-out figures that no name explains, of those that were printed again and again."""
        return {
            label: [[step, value] for step, value in values]
            for label, values in self._others.items()
            if len({step for step, _ in values}) >= self.REPEATED and len({value for _, value in values}) > 1
        }

    def as_fact(self) -> dict[str, list[list[float]]]:
        """Step and value of each metric; shares printed as percentages without a sign are scaled."""
        fact = {}
        for label, values in self._values.items():
            largest = max((value for _, value in values if value == value), default=0.0)
            percent = label.rpartition("_")[2] in _NOTHING_ELSE and 1.0 < largest <= 100.0
            fact[label] = [[step, value / 100 if percent else value] for step, value in values]
        return fact


class ChosenMetric:
    """The figure that ``--metric REGEX`` picks out of what a script prints."""

    def __init__(self, pattern: str) -> None:
        try:
            self._pattern = re.compile(pattern)
        except re.error as error:
            raise BadInput(f"--metric {pattern!r} is no regular expression: {error}") from error
        if self._pattern.groups != 1:
            raise BadInput(
                f"--metric {pattern!r} has {self._pattern.groups} groups; give one, around the number: "
                r"--metric 'val_acc: ([\d.]+)'"
            )

    def values(self, line: str) -> list[float]:
        """The values in one line."""
        found = []
        for match in self._pattern.finditer(line):
            text = (match[1] or "").strip().rstrip("%")
            try:
                found.append(float(text))
            except ValueError:
                continue
        return found
