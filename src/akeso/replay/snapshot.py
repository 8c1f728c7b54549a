"""Snapshots on disk: sealed by digests, committed by one rename, the newest whole ones kept.

A snapshot is a folder ``snapshots/000000000400`` with ``tensors.safetensors``, ``state.json`` and
``manifest.json``, which names the length and the BLAKE2 digest of the other two and carries a digest of
itself. It is written as ``.writing-…`` beside its place, synced file by file, and renamed; so a folder that
bears the name of a step is either whole or was damaged later, and the digests tell.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from akeso.errors import AkesoError, BadInput
from akeso.replay.snapshot_tensors import read_tensors
from akeso.replay.state import Packing, unpack
from akeso.replay.state_sharing import Shared, counterparts

FOLDER = "snapshots"
FORMAT = 1
_MANIFEST, _STATE, _TENSORS = "manifest.json", "state.json", "tensors.safetensors"


class DamagedSnapshot(AkesoError):
    """A snapshot whose files do not bear out its digests."""


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """One snapshot on disk: the step it was taken after, where it is, how large, and what is wrong with it."""

    step: int
    path: Path
    bytes: int
    damage: str | None

    @property
    def whole(self) -> bool:
        """Whether everything the manifest promises is there, bit for bit."""
        return self.damage is None


def write(
    folder: Path,
    step: int,
    tree: Mapping[str, Any],
    header: bytes,
    data: memoryview,
    keep: int = 2,
    spare: int = 0,
    worthless: Collection[int] = (),
) -> Path:
    """Write one snapshot and drop those that are no longer needed.

    Args:
        folder: The run folder.
        step: The number of steps done.
        tree: Everything that is not a tensor, as JSON.
        header: The first bytes of the safetensors file.
        data: The rest of it.
        keep: How many of the newest whole snapshots stay.
        spare: Snapshots at multiples of this many steps stay for good; 0 keeps none.
        worthless: Steps whose snapshots were found damaged: they count for nothing and are dropped.

    Where there is no room for one more, those before the newest whole one make it.

    Raises:
        OSError: The disk is full or the folder cannot be written. The newest whole snapshot stays.
    """
    home = folder / FOLDER
    home.mkdir(exist_ok=True)
    _clear(home)
    text = json.dumps(tree, separators=(",", ":")).encode()
    try:
        final = _commit(home, step, text, header, data)
    except OSError as error:
        lacking = error.errno in (errno.ENOSPC, errno.EDQUOT)
        if not lacking or not _make_room(home, len(text) + len(header) + len(data), spare):
            raise
        final = _commit(home, step, text, header, data)
    _drop_old(home, keep, spare, worthless)
    return final


def _commit(home: Path, step: int, text: bytes, header: bytes, data: memoryview) -> Path:
    working = home / f".writing-{step:012d}-{os.getpid()}"
    final = home / f"{step:012d}"
    try:
        working.mkdir()
        files = {
            _TENSORS: _write(working / _TENSORS, header, data),
            _STATE: _write(working / _STATE, text),
        }
        manifest = {"format": FORMAT, "step": step, "files": files}
        manifest["seal"] = _seal(manifest)
        _write(working / _MANIFEST, json.dumps(manifest, indent=1).encode())
        _sync_folder(working)
        if final.exists():
            # Steps run again after a kill arrive here a second time; the rename must find the place free.
            old = home / f".replaced-{step:012d}-{os.getpid()}"
            os.rename(final, old)
            os.rename(working, final)
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.rename(working, final)
        _sync_folder(home)
    except BaseException:
        shutil.rmtree(working, ignore_errors=True)
        raise
    return final


def _write(path: Path, *parts: bytes | memoryview) -> dict[str, Any]:
    digest, length = blake2b(digest_size=20), 0
    with open(path, "wb", buffering=0) as file:
        for part in parts:
            view = memoryview(part)
            # In pieces, so that hashing and writing share the cache and neither keeps the interpreter for
            # long.
            for start in range(0, len(view), 1 << 20):
                piece = view[start : start + (1 << 20)]
                digest.update(piece)
                done = 0
                while done < len(piece):
                    done += file.write(piece[done:]) or 0
            length += len(view)
        os.fsync(file.fileno())
    return {"bytes": length, "blake2b": digest.hexdigest()}


def _seal(manifest: Mapping[str, Any]) -> str:
    body = {name: value for name, value in manifest.items() if name != "seal"}
    return blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=20).hexdigest()


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _clear(home: Path) -> None:
    """Remove what a killed process was writing; the lock of the run folder says that nobody writes it now."""
    for left in home.glob(".*-*"):
        shutil.rmtree(left, ignore_errors=True)


def _make_room(home: Path, needed: int, spare: int) -> bool:
    """Give up the snapshots before the newest whole one, if one more has room then; say whether it has."""
    newest, _ = newest_whole(home.parent)
    if newest is None:
        return False
    older = [home / f"{step:012d}" for step in _steps(home) if step < newest.step and _passing(step, spare)]
    disk = os.statvfs(home)
    free = disk.f_bavail * disk.f_frsize + sum(examine(path).bytes for path in older)
    if not older or free < needed:
        return False
    for path in older:
        shutil.rmtree(path, ignore_errors=True)
    return True


def _drop_old(home: Path, keep: int, spare: int, worthless: Collection[int]) -> None:
    steps = [step for step in _steps(home) if step not in worthless]
    dropped = [step for step in steps[: max(len(steps) - keep, 0)] if _passing(step, spare)]
    for step in (*dropped, *worthless):
        shutil.rmtree(home / f"{step:012d}", ignore_errors=True)


def _passing(step: int, spare: int) -> bool:
    """Tell whether the snapshot of a step is not one of those that stay for good."""
    return not spare or step % spare != 0


def _steps(home: Path) -> list[int]:
    if not home.is_dir():
        return []
    return sorted(int(entry.name) for entry in home.iterdir() if entry.name.isdigit() and entry.is_dir())


def examine(path: Path) -> SnapshotInfo:
    """Compare a snapshot with its digests."""
    step = int(path.name)
    size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    return SnapshotInfo(step, path, size, _damage(path))


def _damage(path: Path) -> str | None:
    try:
        manifest = json.loads((path / _MANIFEST).read_bytes())
        if manifest["seal"] != _seal(manifest):
            return f"{_MANIFEST} was changed"
        if manifest["format"] != FORMAT:
            return f"is of format {manifest['format']}; this version reads format {FORMAT}"
        if manifest["step"] != int(path.name):
            return f"is the snapshot of step {manifest['step']}, under another name"
        for name, promised in manifest["files"].items():
            size = (path / name).stat().st_size
            if size != promised["bytes"]:
                return f"{name} has {size} bytes instead of {promised['bytes']}"
            digest = blake2b(digest_size=20)
            with open(path / name, "rb") as file:
                while piece := file.read(1 << 20):
                    digest.update(piece)
            if digest.hexdigest() != promised["blake2b"]:
                return f"{name} has other bits than were written"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{_MANIFEST} cannot be read: {error}"
    return None


def found(folder: Path) -> tuple[SnapshotInfo, ...]:
    """Return the snapshots of a run folder, oldest first, each compared with its digests."""
    home = folder / FOLDER
    return tuple(examine(home / f"{step:012d}") for step in _steps(home))


def newest_whole(
    folder: Path, at_most: int | None = None
) -> tuple[SnapshotInfo | None, tuple[SnapshotInfo, ...]]:
    """Return the newest whole snapshot (of at most so many steps) and the damaged ones passed over."""
    home = folder / FOLDER
    passed: list[SnapshotInfo] = []
    for step in reversed(_steps(home)):
        if at_most is not None and step > at_most:
            continue
        info = examine(home / f"{step:012d}")
        if info.whole:
            return info, tuple(passed)
        passed.append(info)
    return None, tuple(passed)


def load_tree(info: SnapshotInfo) -> dict[str, Any]:
    """Return everything in a snapshot that is not a tensor."""
    if info.damage is not None:
        raise DamagedSnapshot(f"the snapshot at {info.path} cannot be used: {info.damage}")
    tree = json.loads((info.path / _STATE).read_bytes())
    if not isinstance(tree, dict):
        raise BadInput(f"{info.path / _STATE} is not the state of a run")
    return tree


class Loaded:
    """A snapshot in memory, of which each part is put together when it is asked for.

    Its objects may be of classes that the program defines or imports after its run has been made.
    """

    def __init__(self, info: SnapshotInfo) -> None:
        self._tree = load_tree(info)
        self._tensors = read_tensors(info.path / _TENSORS)

    def part(self, name: str, default: Any = None, shared: Shared | None = None) -> Any:
        """Return one part of the state, tensors on the devices they came from."""
        return unpack(self._tree[name], self._tensors, shared) if name in self._tree else default

    def in_place_of(self, part: str, live: Any) -> Shared:
        """Return what makes other parts share the memory of live tensors, as they did with those of this part."""
        packing, shared = Packing(), Shared()
        for saved, name in counterparts(self._tree[part], packing.tree(live, part)).items():
            for kind in range(3):
                shared.first((saved, kind), packing.tensors[name])
        return shared

    def whole(self) -> dict[str, Any]:
        """Return the whole state."""
        shared = Shared()
        return {name: self.part(name, shared=shared) for name in self._tree}


def load(info: SnapshotInfo) -> dict[str, Any]:
    """Return the whole state a snapshot holds, tensors on the devices they came from."""
    return Loaded(info).whole()
