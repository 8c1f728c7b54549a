"""The data sets of the benchmarks, as NumPy arrays.

Real data is looked for in the folder that ``AKESO_DATA`` names, else in ``../shared/data`` beside the
checkout. Where a file is missing, a stand-in of the same shape is made from scikit-learn's digits (images) or
from drawn words (texts), and that is said on stderr. ``python -m benchmarks.data`` prints what was found.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits, make_blobs, make_circles

Array = NDArray[np.generic]
_FILES = {name: f"{name}.npz" for name in ("mnist", "cifar10", "imdb", "reuters", "exchange_rate")}
_FILES["tinyshakespeare"] = "tinyshakespeare.txt"


@dataclass(frozen=True, slots=True)
class Data:
    """Training and validation arrays of one data set, and whether they are the real thing."""

    x_train: Array
    y_train: Array
    x_val: Array
    y_val: Array
    real: bool = True


def folder() -> Path:
    """Where real data is looked for."""
    named = os.environ.get("AKESO_DATA")
    return Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"


def missing() -> list[str]:
    """The names of the data sets that are not there."""
    return [name for name, file in _FILES.items() if not (folder() / file).is_file()]


@cache
def _say_missing(name: str) -> None:
    print(
        f"benchmarks.data: {_FILES[name]} is not in {folder()} (set AKESO_DATA); a stand-in is used",
        file=sys.stderr,
    )


@cache
def circle() -> Data:
    """Two rings, AUTOTRAINER's Circle: 700 training and 300 validation points, labels 0 and 1."""
    x, y = make_circles(1000, noise=0.1, random_state=1)
    return Data(x[:700].astype(np.float32), y[:700], x[700:].astype(np.float32), y[700:])


@cache
def blob() -> Data:
    """Three clusters, AUTOTRAINER's Blob: 700 training and 300 validation points, labels 0 to 2."""
    x, y = make_blobs(1000, centers=3, cluster_std=2, random_state=2)
    return Data(x[:700].astype(np.float32), y[:700], x[700:].astype(np.float32), y[700:])


def _archive(name: str) -> Data | None:
    path = folder() / _FILES[name]
    if not path.is_file():
        _say_missing(name)
        return None
    with np.load(path, allow_pickle=False) as file:
        labels = [key for key in file.files if key.startswith("y_")]
        assert len(labels) == 2, f"{path} holds {file.files}, expected x_train, y_train, x_test, y_test"
        return Data(file["x_train"], file["y_train"].reshape(-1), file["x_test"], file["y_test"].reshape(-1))


def _digit_images(size: int, channels: int) -> Data:
    digits = load_digits()
    images = np.kron(digits.images * (255 / 16), np.ones((3, 3)))
    border = (size - 24) // 2
    images = np.pad(images, ((0, 0), (border, border), (border, border))).astype(np.uint8)
    if channels:
        images = np.repeat(images[..., None], channels, axis=-1)
    return Data(images[:1400], digits.target[:1400], images[1400:], digits.target[1400:], real=False)


def _drawn_texts(topics: int, train: int, val: int) -> Data:
    """Documents of 200 word ids: half the words are common to all topics, half are a topic's own."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, topics, train + val)
    common = 4 + (draw.zipf(1.3, (train + val, 200)) % 2000)
    own = 2004 + labels[:, None] * 50 + draw.integers(0, 60, (train + val, 200))
    words = np.where(draw.random((train + val, 200)) < 0.2, own, common)
    length = draw.integers(60, 201, train + val)
    words[np.arange(200)[None] < (200 - length)[:, None]] = 0
    return Data(words[:train], labels[:train], words[train:], labels[train:], real=False)


@cache
def mnist() -> Data:
    """Hand-written digits: images (n, 28, 28) of bytes."""
    return _archive("mnist") or _digit_images(28, 0)


@cache
def cifar10() -> Data:
    """Photographs of ten kinds: images (n, 32, 32, 3) of bytes."""
    return _archive("cifar10") or _digit_images(32, 3)


@cache
def imdb() -> Data:
    """Film reviews as (n, 200) word ids under 5000, padded in front with 0; labels 0 and 1."""
    return _archive("imdb") or _drawn_texts(2, 5000, 2000)


@cache
def reuters() -> Data:
    """News wires as (n, 200) word ids under 5000, padded in front with 0; 43 topics."""
    return _archive("reuters") or _drawn_texts(43, 7500, 1900)


@cache
def exchange_rate() -> Array:
    """Daily exchange rates of eight currencies, (days, 8)."""
    path = folder() / _FILES["exchange_rate"]
    if path.is_file():
        with np.load(path, allow_pickle=False) as file:
            return np.asarray(file["x"], np.float32)
    _say_missing("exchange_rate")
    steps = np.random.default_rng(0).normal(0, 0.01, (7588, 8))
    return np.exp(np.cumsum(steps - 1e-5, axis=0)).astype(np.float32)


@cache
def shakespeare(characters: int = 200_000) -> str:
    """The beginning of the tiny Shakespeare text."""
    path = folder() / _FILES["tinyshakespeare"]
    if path.is_file():
        return path.read_text()[:characters]
    _say_missing("tinyshakespeare")
    draw = np.random.default_rng(0)
    words = ["".join(draw.choice(list("abcdefghijklmnop"), n)) for n in draw.integers(2, 9, 300)]
    return " ".join(words[i % 300] for i in draw.zipf(1.4, characters // 6))[:characters]


def main() -> None:
    """Print which data was found."""
    absent = missing()
    print(f"folder: {folder()}")
    for name, file in _FILES.items():
        print(f"{name:16} {'missing, a stand-in is used' if name in absent else file}")


if __name__ == "__main__":
    main()
