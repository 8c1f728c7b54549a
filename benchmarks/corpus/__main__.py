"""``python -m benchmarks.corpus list|run|script|measure|verify``."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from benchmarks.corpus import case, cases, held_out
from benchmarks.corpus.truth import TRUTH, measure, verify

_SCRIPT = '''"""Train the case {name!r} of the corpus."""

from benchmarks.corpus import case

print("metric", case({name!r}).run({variant!r}, seed={seed}))
'''


def _list() -> None:
    for one in cases().values():
        half = "held-out" if held_out(one.name) else "dev"
        what = f"{one.dataset:10} {one.family:14} {one.style:10} {half}"
        print(f"{one.name:40} {one.problem or 'healthy':27} {what}")
    counts = Counter(one.problem or "healthy" for one in cases().values())
    print("\n" + "  ".join(f"{problem} {count}" for problem, count in counts.most_common()))
    print(f"sick {sum(c.sick for c in cases().values())}, healthy {counts['healthy']}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="name all cases")
    for name, text in (("run", "train one case in this process"), ("script", "print one case as a script")):
        sub = commands.add_parser(name, help=text)
        sub.add_argument("case")
        sub.add_argument("--variant", choices=["sick", "fixed", "healthy"])
        sub.add_argument("--seed", type=int, default=0)
    sub = commands.add_parser("measure", help="train one case over seeds and print its figures as JSON")
    sub.add_argument("case")
    sub.add_argument("--seeds", type=int, default=3)
    sub = commands.add_parser("verify", help="measure all cases and write the truth")
    sub.add_argument("--jobs", type=int, default=1)
    sub.add_argument("--only", default="", metavar="PATTERN")
    sub.add_argument("--out", type=Path, default=TRUTH)
    sub.add_argument("--seeds", type=int, default=3)
    sub.add_argument("--again", action="store_true", help="measure what was measured before, too")
    options = parser.parse_args(arguments)

    if options.command == "list":
        _list()
    elif options.command == "run":
        print(f"metric {case(options.case).run(options.variant, options.seed):.4f}")
    elif options.command == "script":
        one = case(options.case)
        variant = options.variant or ("sick" if one.sick else "healthy")
        print(_SCRIPT.format(name=one.name, variant=variant, seed=options.seed), end="")
    elif options.command == "measure":
        print(json.dumps(measure(case(options.case), options.seeds)))
    else:
        return 1 if verify(options.jobs, options.only, options.out, options.seeds, options.again) else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
