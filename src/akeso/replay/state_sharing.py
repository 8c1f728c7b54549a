"""Objects that a program reaches on several ways: written once, and one object again when they come back.

``episodes.append(episode)`` and ``episode.append(step)`` later on: in a snapshot the list is held under two
names, and a process that goes on must find it under both. Likewise ``best = model.state_dict()``, which most
often should have been copied, follows the model as long as the process lives, and has to in the next one.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

Tree = Any


class Sharing:
    """Puts labels on the parts of trees that stand for one object met more than once."""

    def __init__(self) -> None:
        self._again: set[int] = set()
        self._labels: dict[int, int] = {}

    def met_again(self, tree: Tree) -> Tree:
        """Note that the object of this tree was met once more; the tree must stay alive."""
        self._again.add(id(tree))
        return tree

    def labelled(self, tree: Tree) -> Tree:
        """Return a tree in which such parts stand where they come first, and further on only their labels."""
        return self._walk(tree) if self._again else tree

    def _walk(self, tree: Tree) -> Tree:
        if not isinstance(tree, list | dict):
            return tree
        number = self._labels.get(id(tree))
        if number is not None:
            return {"$": "again", "i": number}
        if id(tree) in self._again:
            self._labels[id(tree)] = number = len(self._labels)
        made: Tree
        if isinstance(tree, list):
            made = [self._walk(item) for item in tree]
        else:
            made = {entry: self._walk(item) for entry, item in tree.items()}
        return made if number is None else {"$": "shared", "i": number, "v": made}


class Shared:
    """Objects and tensors of a snapshot by their labels and names."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}
        self._several: set[Hashable] = set()

    def __contains__(self, label: Hashable) -> bool:
        return label in self._made

    def first(self, label: Hashable, value: Any) -> Any:
        """Remember an object under its label."""
        self._made[label] = value
        return value

    def again(self, label: Hashable) -> Any:
        """Return the object of a label, as one that is used in several places."""
        self._several.add(label)
        return self._made[label]

    def several(self) -> frozenset[int]:
        """Return the identities of the objects that are used in several places."""
        return frozenset(id(self._made[label]) for label in self._several)


def counterparts(saved: Tree, live: Tree) -> dict[str, str]:
    """Return which tensor of a tree is which one of another of the same form, by their names."""
    found: dict[str, str] = {}
    if isinstance(saved, list) and isinstance(live, list):
        for one, other in zip(saved, live, strict=False):
            found |= counterparts(one, other)
    elif isinstance(saved, dict) and isinstance(live, dict):
        if saved.get("$") == live.get("$") == "tensor":
            return {saved["n"]: live["n"]}
        for entry in saved.keys() & live.keys():
            found |= counterparts(saved[entry], live[entry])
    return found
