"""The data of a run: its loaders by name, each checked against the data that the run was begun with."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from akeso.replay import digests, fingerprint_data
from akeso.replay.keys import key
from akeso.replay.loader import KeyedLoader, Loading
from akeso.replay.loader_own import loading_of
from akeso.replay.sampler import KeyedOrder
from akeso.replay.state_marks import mark
from akeso.replay.state_places import changeable


class RunData:
    """Loaders of a run by the name of the loop that reads them.

    Args:
        seed: That of the run.
        known: Manifests of the data that the run was begun with; new ones are added here.
        orders: Orders of the epochs in use when the snapshot was taken, by the name of the loop.
        changed: Digests of data that the program had changed by then, by the name of the loop.
        differ: Called with what is not as it was; raises where that is not allowed.
        say: Tells the user.
        save: Called when a manifest was added.
    """

    def __init__(
        self,
        seed: int,
        known: dict[str, Any],
        orders: dict[str, dict[str, Any]],
        changed: dict[str, str],
        differ: Callable[[tuple[str, ...]], None],
        say: Callable[[str], None],
        save: Callable[[], None],
    ) -> None:
        self._seed, self._known, self._orders = seed, known, orders
        self._changed = changed
        self._differ, self._say, self._save = differ, say, save
        # The data is kept with its loader, so that no other can be taken for it, and how it is read.
        self._loaders: dict[str, tuple[Any, dict[str, Any], KeyedLoader]] = {}
        self._checked: set[str] = set()
        # What the data was like when it was checked.
        self._marks: dict[str, Any] = {}

    def holds(self, name: str, data: Any, options: dict[str, Any]) -> bool:
        """Whether a loop of this name has read this data before, and in this way."""
        return name in self._loaders and self._loaders[name][0] is data and self._loaders[name][1] == options

    def loader(self, name: str, data: Any, options: dict[str, Any], epoch: int | None) -> KeyedLoader:
        """The loader of a loop from an epoch on; the same one as long as it is given the same data and options.

        Without an epoch the stream gives nothing any more, and what data it has does not matter.
        """
        if self.holds(name, data, options):
            loader = self._loaders[name][2]
            loader.order.renew()
            return loader
        seed = key(self._seed, "data", name)
        loading, order = loading_of(data, seed, **options)
        if epoch is not None and not (name in self._loaders and self._loaders[name][0] is data):
            self._check(name, loading, epoch)
        return self._kept(name, data, options, KeyedLoader(loading, order, seed))

    def _kept(self, name: str, data: Any, options: dict[str, Any], loader: KeyedLoader) -> KeyedLoader:
        if name in self._orders:
            loader.order.restore(self._orders[name])
        self._loaders[name] = (data, options, loader)
        return loader

    def orders(self) -> dict[str, dict[str, Any]]:
        """What snapshots hold of the orders in use, by the name of the loop."""
        found = {name: loader.order.held() for name, (*_, loader) in self._loaders.items()}
        return {name: held for name, held in found.items() if held is not None}

    def changed(self) -> dict[str, str]:
        """What snapshots hold of data that the program has changed since it was checked: digests.

        A program may make its data from what it keeps in ``run.state``, which is there when it begins again.
        """
        found = {}
        for name, (_, _, loader) in self._loaders.items():
            loading = loader.loading
            if name in self._marks and _marks(loading.dataset) != self._marks[name]:
                manifest = fingerprint_data.manifest(loading.dataset, loading.transform, loading.collate)
                found[name] = _digest(manifest)
        return found

    def counter(self, name: str, count: int) -> KeyedLoader:
        """The loader of a loop that makes its own data: the numbers of its iterations."""
        if name not in self._loaders or self._loaders[name][0] != count:
            loading = Loading(range(sys.maxsize), batched=False)
            order = KeyedOrder(count, 1, seed=self._seed, shuffle=False)
            return self._kept(name, count, {}, KeyedLoader(loading, order, self._seed))
        return self._loaders[name][2]

    def _check(self, name: str, loading: Loading, epoch: int) -> None:
        dataset = loading.dataset
        now = fingerprint_data.manifest(dataset, loading.transform, loading.collate)
        self._marks[name] = _marks(dataset)
        then, first = self._known.get(name), name not in self._checked
        self._checked.add(name)
        if first and self._changed.get(name) == _digest(now):
            self._marks[name] = None  # other than the run began with, from now on
            return
        if then is not None:
            self._compare(then, now, first, epoch)
            return
        now["files"]["marks"] = fingerprint_data.file_marks(now)
        if not fingerprint_data.checkable(now):
            self._say(
                f"the data of this {type(dataset).__name__} cannot be checked: it holds and names no arrays "
                "and no files; should they change, a resumed run will not notice"
            )
        self._known[name] = now
        self._save()

    def _compare(self, then: dict[str, Any], now: dict[str, Any], first: bool, epoch: int) -> None:
        """Compare data with that which the loop had in this epoch before; new data may come with a new epoch."""
        later: dict[str, str] = then.setdefault("later", {})
        since = [int(at) for at in later if int(at) <= epoch]
        digest = _digest(now)
        if since:
            found: tuple[str, ...] = ()
            if later[str(max(since))] != digest:
                found = (
                    f"data: the program made other data for epoch {epoch} than before it was interrupted; keep "
                    "what it is made from in run.state and, if it is there when the program begins, take it from "
                    "there; go over what the model itself brings forth in a plain loop inside of run.iterations(n)",
                )
        else:
            # What the code names may be changed by the program itself later on.
            found = fingerprint_data.compare(then, now if first else {**now, "named": {}})
            doubt = fingerprint_data.unsure(then) if first else None
            if doubt is not None:
                self._say(doubt)
        if found and str(epoch) not in later and (later or not first):
            later[str(epoch)] = digest  # the program's own doing
            self._save()
            return
        self._differ(found)


def _digest(manifest: dict[str, Any]) -> str:
    return digests.of(
        [
            manifest["kind"],
            manifest["length"],
            sorted(manifest["arrays"].items()),
            manifest["files"]["digest"],
        ]
    )


def _marks(dataset: Any) -> list[Any]:
    return [(place.path, mark(place.value, close=False)) for place in changeable(dataset)]
