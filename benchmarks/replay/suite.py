"""Everything that is asked of one program: repeated, killed, resumed, replayed, with workers, on processes."""

from __future__ import annotations

import os
import random
import shutil
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from akeso.replay import snapshot
from akeso.replay.journal import read
from akeso.replay.resume import VARIABLE, Orders
from benchmarks.replay import lives
from benchmarks.replay.programs import PROGRAMS, SMALL, Scale
from benchmarks.replay.training import Killing, live, plain

EVERY = 5


def judge(name: str, device: str, kills: int, stretches: int, seed: int = 0) -> dict[str, Any]:
    """Put one program through all columns of the table; return what was found, as JSON."""
    draw = random.Random(f"{name}{seed}")
    home = Path(tempfile.mkdtemp(prefix=f"akeso-bench-{name}-"))
    try:
        return _judge(name, device, kills, stretches, draw, home)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _judge(
    name: str, device: str, kills: int, stretches: int, draw: random.Random, home: Path
) -> dict[str, Any]:
    once = partial(live, name, scale=SMALL, device=device, every=EVERY)
    first = lives.result(lambda: plain(name, SMALL, device))
    second = lives.result(lambda: plain(name, SMALL, device))
    reference = lives.result(lambda: once(str(home / "a")))
    again = lives.result(lambda: once(str(home / "b")))
    found: dict[str, Any] = {
        "program": name,
        "device": device,
        "steps": reference["steps"],
        "plain equal": first["digest"] == second["digest"],
        "plain drift": abs(first["loss"] - second["loss"]) / max(abs(first["loss"]), 1e-12),
        "repeated": reference == again and _journal(home / "a") == _journal(home / "b"),
    }
    found |= _killed(once, reference, kills, draw, home)
    found |= _replayed(once, stretches, draw, home)
    found["workers"] = {
        str(count): _same(lives.result(lambda: once(str(home / f"w{count}"), workers=count)), reference)  # noqa: B023
        for count in (1, 3)
    }
    found["processes"] = _processes(name, home) if device == "cpu" else {}
    infos = snapshot.found(home / "a")
    found["snapshot bytes"] = infos[-1].bytes
    written = read(home / "a").all("snapshot")
    found["snapshot seconds"] = statistics.median(line["seconds"] for line in written)
    return found


def _same(result: dict[str, Any], reference: dict[str, Any]) -> bool:
    return result == reference


def _journal(folder: Path) -> list[Any]:
    """Return the cheap part of every step: the dear digests are taken at steps chosen by the clock."""
    steps = read(folder).steps()
    return [(step, steps[step].samples, steps[step].generators, steps[step].loss) for step in sorted(steps)]


def _killed(
    once: Callable[..., dict[str, Any]],
    reference: dict[str, Any],
    kills: int,
    draw: random.Random,
    home: Path,
) -> dict[str, Any]:
    """Kill chains of lives until there have been so many kills; every chain has to end in the reference."""
    done, chains, equal, differing = 0, 0, 0, 0
    wanted = _journal(home / "a")
    while done < kills:
        folder = home / f"k{chains}"
        chains += 1
        while True:
            standing = _standing(folder)
            # A kill comes within a few steps of where the last life was taken up, at any moment of a step.
            at = standing + draw.randint(1, 2 * EVERY + 2)
            killing = Killing(at, draw.choice((0.0, draw.uniform(0, 0.03)))) if done < kills else None
            ending = lives.run(lambda: once(str(folder), killing=killing))  # noqa: B023
            if ending.signal == 9:
                done += 1
                continue
            if ending.result is None:
                return {"kills": done, "killed": False, "error": ending.error}
            differing += len(ending.result["mismatches"])
            equal += _same(ending.result, reference) and _journal(folder) == wanted
            break
        shutil.rmtree(folder, ignore_errors=True)
    return {"kills": done, "chains": chains, "killed": equal == chains, "mismatches": differing}


def _standing(folder: Path) -> int:
    info, _ = snapshot.newest_whole(folder) if folder.exists() else (None, ())
    return info.step if info else 0


def _replayed(
    once: Callable[..., dict[str, Any]], stretches: int, draw: random.Random, home: Path
) -> dict[str, Any]:
    """Run random stretches again under orders, as ``akeso replay`` does."""
    from benchmarks.replay.reading import report

    folder, good = home / "a", 0
    total = max(read(folder).steps())
    for number in range(stretches):
        first = draw.randint(1, total - 5)
        last = min(total, first + draw.randint(2, 15))
        path = home / f"report{number}.json"
        orders = Orders("replay", str(folder.resolve()), False, first, last, str(path))
        ending = lives.run(lambda: once(str(folder)), {VARIABLE: orders.environment()[VARIABLE]})
        good += not ending.error and report(path).equal
    return {"stretches": stretches, "replayed": good == stretches}


def _processes(name: str, home: Path) -> dict[str, bool]:
    """Train on 1, 2 and 4 processes, and begin on 4, kill them all, and go on with 2."""
    alone = _world(name, home / "p1", 1)[0]
    found = {}
    for world in (2, 4):
        results = _world(name, home / f"p{world}", world)
        found[str(world)] = all(one is not None and _same(one, alone or {}) for one in results)
    folder = home / "p42"
    _world(name, folder, 4, Killing(33, 0.0))
    results = _world(name, folder, 2)
    found["4 then 2"] = all(one is not None and _same(one, alone or {}) for one in results)
    return found


def _world(
    name: str, folder: Path, world: int, killing: Killing | None = None
) -> list[dict[str, Any] | None]:
    meeting = tempfile.mktemp(prefix="akeso-meet-")

    def one(rank: int) -> dict[str, Any]:
        import torch.distributed as distributed

        if world > 1:
            distributed.init_process_group(
                "gloo", init_method=f"file://{meeting}", rank=rank, world_size=world
            )
        result = live(name, str(folder), SMALL, every=EVERY, killing=killing, virtual=4)
        if world > 1:
            distributed.destroy_process_group()
        return result

    started = [
        lives.fork(partial(one, rank), {"RANK": str(rank), "WORLD_SIZE": str(world)}) for rank in range(world)
    ]
    endings = [wait() for wait in started]
    if os.path.exists(meeting):
        os.unlink(meeting)
    for ending in endings:
        if ending.error and killing is None:
            raise RuntimeError(f"{name} on {world} processes: {ending.error}")
    return [ending.result for ending in endings]


def names(only: str | None) -> list[str]:
    """Return the programs asked for."""
    if not only:
        return list(PROGRAMS)
    chosen = [name.strip() for name in only.split(",")]
    unknown = [name for name in chosen if name not in PROGRAMS]
    if unknown:
        raise SystemExit(f"no program is called {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    return chosen


def scale_of(scale: Scale) -> dict[str, Any]:
    """Return a scale as JSON."""
    return asdict(scale)
