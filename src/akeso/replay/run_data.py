"""The data of a run: its loaders by name, each checked against the data that the run was begun with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from akeso.replay import fingerprint_data
from akeso.replay.keys import key
from akeso.replay.loader import KeyedLoader, Loading
from akeso.replay.loader_own import loading_of
from akeso.replay.sampler import KeyedOrder


class RunData:
    """Loaders of a run by the name of the loop that reads them.

    Args:
        seed: That of the run.
        known: Manifests of the data that the run was begun with; new ones are added here.
        differ: Called with what is not as it was; raises where that is not allowed.
        say: Tells the user.
        save: Called when a manifest was added.
    """

    def __init__(
        self,
        seed: int,
        known: dict[str, Any],
        differ: Callable[[tuple[str, ...]], None],
        say: Callable[[str], None],
        save: Callable[[], None],
    ) -> None:
        self._seed, self._known = seed, known
        self._differ, self._say, self._save = differ, say, save
        self._loaders: dict[str, tuple[int, KeyedLoader]] = {}

    def holds(self, name: str, data: Any) -> bool:
        """Whether a loop of this name has read this data before."""
        return name in self._loaders and self._loaders[name][0] == id(data)

    def loader(self, name: str, data: Any, workers: int | None, options: dict[str, Any]) -> KeyedLoader:
        """The loader of a loop; the same one as long as the loop is given the same data."""
        if self.holds(name, data):
            return self._loaders[name][1]
        seed = key(self._seed, "data", name)
        loading, order = loading_of(data, seed, workers, **options)
        self._check(name, loading)
        loader = KeyedLoader(loading, order, seed)
        self._loaders[name] = (id(data), loader)
        return loader

    def counter(self, name: str, count: int) -> KeyedLoader:
        """The loader of a loop that makes its own data: the numbers of its iterations."""
        if name not in self._loaders:
            loading = Loading(range(count), batched=False)
            order = KeyedOrder(count, 1, seed=self._seed, shuffle=False)
            self._loaders[name] = (-count, KeyedLoader(loading, order, self._seed))
        return self._loaders[name][1]

    def _check(self, name: str, loading: Loading) -> None:
        dataset = loading.dataset
        now = fingerprint_data.manifest(dataset, loading.transform, loading.collate)
        then = self._known.get(name)
        if then is not None:
            first = name not in self._loaders
            # What the code names may be changed by the program itself later on.
            self._differ(fingerprint_data.compare(then, now if first else {**now, "named": {}}))
            doubt = fingerprint_data.unsure(then) if first else None
            if doubt is not None:
                self._say(doubt)
            return
        now["files"]["marks"] = fingerprint_data.file_marks(now)
        if not fingerprint_data.checkable(now):
            self._say(
                f"the data of this {type(dataset).__name__} cannot be checked: it holds and names no arrays "
                "and no files; should they change, a resumed run will not notice"
            )
        self._known[name] = now
        self._save()
