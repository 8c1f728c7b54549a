"""The table of the programs, and the figures asked for beside those reached."""

from __future__ import annotations

import statistics
from typing import Any

_HEAD = (
    "program",
    "plain twice",
    "akeso twice",
    "killed",
    "replayed",
    "workers 0/1/3",
    "processes 1/2/4, 4→2",
    "recording",
    "snapshots",
    "step ms",
    "snapshot",
)


def _said(equal: bool | None) -> str:
    return "–" if equal is None else "equal" if equal else "NOT EQUAL"


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Return the table as Markdown, one row per program."""
    lines = [" | ".join(_HEAD), " | ".join("---" for _ in _HEAD)]
    for name, row in rows.items():
        if "repeated" not in row:
            lines.append(f"{name} | failed" + " | " * (len(_HEAD) - 2))
            continue
        drift = f"differ by {row['plain drift']:.1%}"
        processes = row.get("processes") or {}
        cells = [
            name,
            "equal" if row["plain equal"] else drift,
            _said(row["repeated"]),
            f"{_said(row['killed'])} ({row['kills']} kills)",
            f"{_said(row['replayed'])} ({row['stretches']})",
            _said(all(row["workers"].values())),
            _said(all(processes.values()) if processes else None),
            f"{row['recording']:+.1%}" if "recording" in row else "–",
            f"{row['snapshots']:+.1%}" if "snapshots" in row else "–",
            f"{row['step ms']:.1f}" if "step ms" in row else "–",
            f"{row.get('real snapshot bytes', row['snapshot bytes']) / 1e6:.2f} MB, "
            f"{1000 * row['snapshot seconds']:.0f} ms",
        ]
        lines.append(" | ".join(cells))
    return "\n".join(f"| {line} |" for line in lines)


def figures(rows: dict[str, dict[str, Any]], device: str, partial: bool) -> tuple[str, bool]:
    """Return what was to be reached beside what was, and whether all of it was."""
    whole = [row for row in rows.values() if "repeated" in row]
    timed = [row for row in whole if "recording" in row]
    kills = sum(row["kills"] for row in whole)
    columns = {
        "programs": (len(whole), ">=", 1 if partial else 6 if device == "cuda" else 16),
        "kills": (kills, ">=", 1 if partial or device == "cuda" else 500),
        "equal when repeated": (_share(whole, lambda row: row["repeated"]), ">=", 1.0),
        "equal after kills": (_share(whole, lambda row: row["killed"] and not row["mismatches"]), ">=", 1.0),
        "equal when replayed": (_share(whole, lambda row: row["replayed"]), ">=", 1.0),
        "equal with 0, 1, 3 workers": (_share(whole, lambda row: all(row["workers"].values())), ">=", 1.0),
        "overhead of recording, median": (_median(timed, "recording"), "<=", 0.05),
        "overhead of snapshots, median": (_median(timed, "snapshots"), "<=", 0.03),
    }
    if timed and "resuming ms" in timed[0]:
        late = max((row["resuming ms"] - row["loading ms"]) / row["step ms"] for row in timed)
        columns["resuming beyond loading, in steps (a snapshot every 100), most"] = (round(late), "<=", 100)
    if device == "cpu":
        share = _share(whole, lambda row: all(row["processes"].values()))
        columns["equal on 1, 2, 4 processes"] = (share, ">=", 1.0)
    differing = sum(not row["plain equal"] for row in whole)
    lines = [f"\nplain programs that differ when run twice: {differing} of {len(whole)}"]
    good = len(whole) == len(rows)
    for title, (reached, sign, wanted) in columns.items():
        met = reached >= wanted if sign == ">=" else reached <= wanted
        good = good and met
        shown = f"{reached:.1%}" if isinstance(reached, float) else str(reached)
        asked = f"{wanted:.0%}" if isinstance(wanted, float) else str(wanted)
        lines.append(f"{title}: {shown} (asked: {sign} {asked}){'' if met else '   FALLS SHORT'}")
    return "\n".join(lines), good


def _share(rows: list[dict[str, Any]], test: Any) -> float:
    return sum(bool(test(row)) for row in rows) / max(len(rows), 1)


def _median(rows: list[dict[str, Any]], name: str) -> float:
    return statistics.median(row[name] for row in rows) if rows else 0.0
