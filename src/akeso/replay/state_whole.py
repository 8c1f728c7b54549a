"""The whole state of a run between two iterations: everything tracked, held, random and in place."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from types import FrameType
from typing import Any

import torch

from akeso.errors import BadInput, Refused
from akeso.replay import generators, state_switches
from akeso.replay.snapshot import Loaded
from akeso.replay.state import Kept, Packing, pack
from akeso.replay.state_digest import exact_digest
from akeso.replay.state_filling import Filling
from akeso.replay.state_held import Held, Hole
from akeso.replay.state_tracked import (
    StateType,
    Tracked,
    TrackedModule,
    TrackedObject,
    TrackedOptimizer,
    adopt,
)


class PlainState(MutableMapping[str, Any]):
    """Plain Python state of a run, as attributes or items: ``run.state.best = 0.3``.

    Anything that can be written without pickle may be kept: numbers, strings, containers, arrays, tensors.
    """

    def __init__(self) -> None:
        object.__setattr__(self, "_values", {})

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        pack(value, f"run.state.{name}")
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(f"run.state has no {name!r}; it holds {sorted(self)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __repr__(self) -> str:
        return f"run.state({self._values!r})"


class WholeState:
    """Everything a run carries, as one value that can be captured and put back."""

    def __init__(self, ours: tuple[type, ...]) -> None:
        self.plain = PlainState()
        self.tracked: dict[str, Tracked] = {}
        self.held = Held(
            (*ours, PlainState), lambda: {name: item.value for name, item in self.tracked.items()}
        )

    def track(self, name: str, value: Any) -> Tracked:
        """Add an object, or put another in the place of one of the same name."""
        item = self.tracked[name] = adopt(name, value)
        return item

    def known(self) -> set[int]:
        """Return the identities of everything that is captured through a tracked object."""
        parameters: dict[int, tuple[str, torch.Tensor]] = {}
        found: set[int] = {id(self.plain), id(self.plain._values)}
        for name, item in self.tracked.items():
            found.add(id(item.value))
            if isinstance(item, TrackedModule):
                named = (*item.value.named_parameters(), *item.value.named_buffers())
                parameters |= {id(part): (f"{name}.{path}", part) for path, part in named}
                found |= {id(part) for part in item.value.modules()}
            elif isinstance(item.value, torch.Tensor):
                parameters[id(item.value)] = (name, item.value)
        for item in self.tracked.values():
            if isinstance(item, TrackedOptimizer):
                item.known = parameters
                found |= {id(part) for group in item.value.param_groups for part in group["params"]}
        found |= parameters.keys()
        for item in self.tracked.values():
            if isinstance(item, TrackedObject):
                item.known = found
        return found

    def look(self, frame: FrameType, at_end: bool) -> tuple[dict[str, Any], tuple[Hole, ...]]:
        """Return the plain state that is held, and the state that nobody classified."""
        return self.held.capture(frame, self.known(), at_end, Packing())

    def capture(
        self, frame: FrameType, at_end: bool, packing: Packing
    ) -> tuple[dict[str, Any], tuple[Hole, ...]]:
        """Return the whole state, with live tensors, for the packing, and what could not be classified."""
        known = self.known()
        held, holes = self.held.capture(frame, known, at_end, packing)
        whole = {
            "tracked": {name: item.capture() for name, item in self.tracked.items()},
            "groups": {
                name: item.groups()
                for name, item in self.tracked.items()
                if isinstance(item, TrackedOptimizer)
            },
            "plain": dict(self.plain),
            "gradients": self._gradients(),
            "generators": generators.capture(),
            "switches": state_switches.capture(),
            "held": Kept(held),
        }
        return whole, holes

    def restore(self, loaded: Loaded, frame: FrameType) -> tuple[str, ...]:
        """Put everything back and check that it came back; return the held names that are gone."""
        known, saved = self.known(), loaded.part("tracked")
        missing = sorted(set(saved) - set(self.tracked))
        extra = sorted(set(self.tracked) - set(saved))
        if missing or extra:
            raise BadInput(
                f"the snapshot has {sorted(saved)} tracked, this process {sorted(self.tracked)}: "
                f"{'missing ' + ', '.join(missing) if missing else 'new ' + ', '.join(extra)}; track the "
                "same objects"
            )
        groups = loaded.part("groups", {})  # snapshots of earlier versions have none
        for name, item in self.tracked.items():
            if isinstance(item, TrackedOptimizer):
                item.add_groups(groups.get(name, []))
            item.restore(saved[name])
        self.known()
        for name, item in self.tracked.items():
            if exact_digest(item.capture()) != exact_digest(saved[name]):
                raise Refused(
                    f"{name} ({type(item.value).__name__}) does not come back bit for bit from the state it "
                    "gave: its load_state_dict changes or drops something"
                )
        shared = loaded.in_place_of("tracked", {name: item.capture() for name, item in self.tracked.items()})
        self.plain._values.clear()
        self.plain._values.update(loaded.part("plain", shared=shared))
        self._put_gradients(loaded.part("gradients"))
        generators.restore(loaded.part("generators"))
        switches = loaded.part("switches")
        if switches is not None:  # snapshots of earlier versions have none
            state_switches.restore(switches)
        held = loaded.part("held", shared=shared)
        return self.held.restore(frame, known, held, Filling(shared.several(), self._tensors()))

    def _tensors(self) -> Iterator[torch.Tensor]:
        """Yield what tracked objects have in tensors of their own."""
        for item in self.tracked.values():
            if isinstance(item, TrackedModule):
                yield from (*item.value.parameters(), *item.value.buffers())
            elif isinstance(item, TrackedOptimizer):
                yield from (part for group in item.value.param_groups for part in group["params"])
            elif isinstance(item.value, torch.Tensor):
                yield item.value

    def _parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        seen: set[int] = set()
        for name, item in self.tracked.items():
            named: list[tuple[str, torch.Tensor]] = []
            if isinstance(item, TrackedModule):
                named = [(f"{name}.{path}", part) for path, part in item.value.named_parameters()]
            elif isinstance(item, TrackedOptimizer):
                groups = item.value.param_groups
                named = [
                    (f"{name}.{at}.{number}", part)
                    for at, group in enumerate(groups)
                    for number, part in enumerate(group["params"])
                ]
            for path, part in named:
                if id(part) not in seen:
                    seen.add(id(part))
                    yield path, part

    def _gradients(self) -> dict[str, torch.Tensor]:
        """Return gradients that are there between two iterations: half an accumulation, most often."""
        return {path: part.grad for path, part in self._parameters() if part.grad is not None}

    def _put_gradients(self, saved: dict[str, torch.Tensor]) -> None:
        for path, part in self._parameters():
            kept = saved.get(path)
            part.grad = None if kept is None else kept.to(part.device)

    def typing(self, held: dict[str, Any]) -> list[dict[str, str]]:
        """Return the type of every piece of state, with what a snapshot holds of it."""
        rows = [
            {"name": name, "type": item.type.value, "what": type(item.value).__name__, "held": "every bit"}
            for name, item in self.tracked.items()
        ]
        rows += [
            {
                "name": f"run.state.{name}",
                "type": StateType.LEARNED.value,
                "what": type(value).__name__,
                "held": "value",
            }
            for name, value in self.plain.items()
        ]
        for path, entry in held.items():
            kind = StateType.RANDOM if "random" in entry else StateType.OPAQUE
            what = "generator" if "random" in entry else type(entry.get("plain")).__name__
            what = f"copy of {entry['like']}" if "like" in entry else what
            rows.append({"name": path, "type": kind.value, "what": what, "held": "value"})
        rows.append({"name": "epoch, batch, step", "type": "position", "what": "int", "held": "the numbers"})
        rows.append(
            {
                "name": "order of samples",
                "type": "recomputable",
                "what": "key(seed, epoch)",
                "held": "nothing",
            }
        )
        return rows
