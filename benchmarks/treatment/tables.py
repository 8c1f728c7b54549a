"""The paper's tables 2, 4 and 6 in our figures, and the plans side by side."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

from benchmarks import corpus
from benchmarks.treatment.tasks import EIGHT

Row = dict[str, Any]
DATASETS = ("blob", "circle", "cifar10", "mnist", "reuters", "imdb", "generated")
PLANS = ("akeso", "autotrainer", "reseed", "random")


class Figures:
    """Results by case and seed, with what the paper's tables ask of them."""

    def __init__(self, rows: Sequence[Row], names: Sequence[str]) -> None:
        self.plain = {(r["case"], r["seed"]): r for r in rows if r["kind"] == "plain" and "error" not in r}
        self.treated: dict[str, dict[tuple[str, int], Row]] = {plan: {} for plan in PLANS}
        self.alone = {(r["case"], r["seed"]): r for r in rows if r["kind"] == "alone" and "error" not in r}
        self.errors = [r for r in rows if "error" in r and r["case"] in names]
        for row in rows:
            key = (row["case"], row["seed"])
            if row["kind"] in PLANS and "error" not in row and key in self.plain and row["case"] in names:
                self.treated[row["kind"]][key] = {**row, **self._judged(row, self.plain[key])}

    @staticmethod
    def _judged(row: Row, plain: Row) -> Row:
        before, expert = plain["before"], plain["expert"]
        after = row["after"] if row["after"] is not None else before
        if row["left"] is None:
            after = before  # the untreated model was handed back
        names = corpus.case(row["case"]).names()
        gone = row["left"] is not None and not names & set(row["left"])
        return {
            "gone": gone, "gain": after - before, "after": after, "before": before, "expert": expert,
            "restored": after >= expert - 0.05 * abs(expert), "worse": after < before - 1e-9,
            "slowdown": row["seconds"] / max(plain["seconds"], 1e-9),
            "problem": corpus.case(row["case"]).problem, "dataset": corpus.case(row["case"]).dataset,
            "points": corpus.case(row["case"]).metric == "accuracy",
        }  # fmt: skip

    def of(self, plan: str) -> list[Row]:
        """All judged results of a plan."""
        return list(self.treated[plan].values())


def interval(values: Sequence[float], of: Callable[[Sequence[float]], float] = mean) -> tuple[float, float]:
    """A 95 % bootstrap interval."""
    if not values:
        return 0.0, 0.0
    draw = random.Random(0)
    means = sorted(of([draw.choice(values) for _ in values]) for _ in range(1000))
    return means[25], means[974]


def table_2(rows: list[Row]) -> list[str]:
    """Problems repaired, by data set and by the first remedy of the prescription."""
    lines = ["Table 2. Problems repaired, by data set; then by remedy (all seeds)", _header(), ""]
    for dataset in DATASETS:
        here = [row for row in rows if row["dataset"] == dataset]
        if here:
            cells = [[row for row in here if row["problem"] == problem] for problem in EIGHT]
            lines.append(
                _line(dataset, [f"{sum(r['gone'] for r in c)}/{len(c)}" if c else "-" for c in cells])
            )
    cells = [[row for row in rows if row["problem"] == problem] for problem in EIGHT]
    lines.append(_line("total", [f"{sum(r['gone'] for r in c)}/{len(c)}" if c else "-" for c in cells]))
    lines.append("")
    by_remedy: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        if row["gone"] and row["prescription"]:
            by_remedy[row["prescription"][0]["remedy"]][row["problem"]] += 1
    for remedy, counts in sorted(by_remedy.items(), key=lambda item: -sum(item[1].values())):
        lines.append(_line(remedy, [str(counts.get(problem, "")) for problem in EIGHT]))
    return lines


def table_4(rows: list[Row]) -> list[str]:
    """Mean gain by problem and data set."""
    lines = ["Table 4. Mean gain in points of the metric (cases whose problem is gone)", _header()]
    for dataset in (*DATASETS, "all"):
        here = [row for row in rows if row["gone"] and dataset in ("all", row["dataset"])]
        cells = [[row["gain"] for row in here if row["problem"] == problem] for problem in EIGHT]
        if here:
            lines.append(_line(dataset, [f"{100 * mean(cell):.1f}" if cell else "-" for cell in cells]))
    return lines


def table_6(figures: Figures) -> list[str]:
    """Each of AUTOTRAINER's solutions on its own."""
    lines = [
        "Table 6. Each solution of AUTOTRAINER on its own: problem gone (%), mean gain where gone (points)"
    ]
    groups: dict[tuple[str, str], list[tuple[bool, float]]] = defaultdict(list)
    for key, row in figures.alone.items():
        case = corpus.case(row["case"])
        if key not in figures.plain:
            continue
        for code, got in row["solutions"].items():
            gone = bool(got["made"]) and got["after"] is not None and not case.names() & set(got["left"])
            gain = (got["after"] or 0.0) - figures.plain[key]["before"]
            groups[case.problem or "", code].append((gone, gain))
    for problem, short in EIGHT.items():
        for (name, code), found in sorted(groups.items()):
            if name == problem:
                gains = [gain for gone, gain in found if gone]
                share = 100 * len(gains) / len(found)
                shown = f"{100 * mean(gains):6.1f}" if gains else "     -"
                lines.append(f"  {short} {code}: {share:5.1f} %  {shown}   ({len(found)} runs)")
    return lines


def side_by_side(figures: Figures) -> list[str]:
    """The four plans at the same budget, with 95 % intervals."""
    head = f"  {'plan':<12} {'runs':>5} {'gone':>7} {'restored':>9} {'after':>22} {'worse':>6}"
    head += f" {'steps':>11} {'time':>6}"
    lines = ["Plans side by side (95 % bootstrap intervals; cost in multiples of one plain training)", head]
    for plan in PLANS:
        rows = figures.of(plan)
        if not rows:
            continue
        low, high = interval([row["after"] for row in rows])
        costs = [row["cost"] for row in rows]
        lines.append(
            f"  {plan:<12} {len(rows):>5} {share(rows, 'gone'):>6.1f}% {share(rows, 'restored'):>8.1f}% "
            f"{mean(row['after'] for row in rows):>7.3f} [{low:.3f}, {high:.3f}] {sum(r['worse'] for r in rows):>4} "
            f"{mean(costs):>5.2f}/{max(costs):>5.2f} {mean(row['slowdown'] for row in rows):>6.2f}"
        )
    for plan in PLANS[1:]:
        both = [key for key in figures.treated["akeso"] if key in figures.treated[plan]]
        gaps = [figures.treated["akeso"][key]["after"] - figures.treated[plan][key]["after"] for key in both]
        if gaps:
            low, high = interval(gaps)
            lines.append(
                f"  akeso minus {plan:<12} {mean(gaps):+.3f} [{low:+.3f}, {high:+.3f}] over {len(gaps)} runs"
            )
    return lines


def share(rows: Sequence[Row], name: str) -> float:
    """Per cent of rows for which something holds."""
    return 100 * sum(bool(row[name]) for row in rows) / max(1, len(rows))


def _header() -> str:
    return _line("", list(EIGHT.values()))


def _line(first: str, cells: Sequence[str]) -> str:
    return f"  {first:<24}" + "".join(f"{cell:>8}" for cell in cells)
