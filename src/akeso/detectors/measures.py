"""Whether a loss written by hand measures what the script itself judges its model by."""

from __future__ import annotations

from akeso.history import History


def directions_alone(history: History) -> tuple[str, float, bool] | None:
    """A loss that sees the direction of outputs alone, in a script that judges them by their distance.

    Where outputs are embeddings, of which only the direction counts, nobody measures how far they are from a target.
    """
    facts = history.facts
    seen = facts.get("loss") == "custom" and facts.get("compared_by") == "direction"
    if not seen or facts.get("validated_by") != "distance":
        return None
    return (
        "The loss compares outputs with targets by their direction alone (`cosine_similarity`), but validation "
        "measures how far apart they are: how large the outputs have to be is never learned. Use `mse_loss`.",
        0.85,
        True,
    )
