"""The digest of a piece of state, as it would be written."""

from __future__ import annotations

import json
import zlib
from typing import Any

from akeso.replay import digests
from akeso.replay.state import pack


def exact_digest(value: Any) -> str:
    """Return the digest of a state as it would be written; code inside it does not count."""
    # Tied weights are one tensor in a model and two in the state that was read back.
    tree, tensors = pack(value, shared=False)
    text = json.dumps(tree, sort_keys=True).encode()
    return f"{zlib.crc32(text):08x}{digests.of_tensors(tensors[name] for name in sorted(tensors))}"
