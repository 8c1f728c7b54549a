"""``python -m akeso.script.prescribed ORDER``: run a script as an order file says."""

from __future__ import annotations

import sys
from pathlib import Path

from akeso.script.prescribed.child import Child
from akeso.script.prescribed.order import Order


def main() -> int:
    """Read the order and carry it out."""
    return Child(Order.read(Path(sys.argv[1]))).run()


if __name__ == "__main__":
    sys.exit(main())
