"""Pictures whose values lie in another order than the network takes them to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from akeso.detectors import curves, network
from akeso.detectors.standing import standing
from akeso.diagnosis import Symptom
from akeso.history import History

_LOOKS, _FIRST, _STEPS = 3, 20, 15
#: How much more alike values must be whose distance is the number of colours. In noise all distances are alike, 1.
_INTERLEAVED: Final = 1.2
#: Correlation of the edges in two channels from which on they are colours after all, and show something that comes
#: back so often: the share of a constant prediction's loss that must be left then.
_ALIKE, _REMAINING = 0.3, 0.3
_PERMUTE: Final = (
    "Turn pictures with `x.permute(0, 3, 1, 2)`: `reshape` and `view` leave every value where it is and only call the "
    "axes something else."
)


def scrambled(history: History, problem: str) -> Iterator[Symptom]:
    """Pictures whose colours still lie side by side, so that every channel is another part of them.

    Only a convolution minds: what takes each value by itself learns as well from any order.
    """
    stand = standing(history)
    convolved = any("Conv2d" in f"{layer.kind} {layer.role}" for layer in history.layers)
    apart = history.series("input_interleaved").finite().values[:_FIRST]
    if not convolved or stand.steps < _STEPS or len(apart) < _LOOKS:
        return
    interleaved = curves.median(apart)
    alike = curves.median(history.series("input_channels_alike").finite().values[:_FIRST])
    colours = not alike < _ALIKE
    if not interleaved >= _INTERLEAVED or (colours and not stand.suffers(_REMAINING)):
        return
    yield Symptom(
        problem,
        "error",
        0.75 if colours else 0.95,
        network.extent(history)[0],
        "",
        {
            "input_shape": history.facts.get("input_shape"),
            "input_interleaved": curves.rounded(interleaved),
            "input_channels_alike": curves.rounded(alike),
        },
        "The pictures are scrambled: neighbouring values are the colours of one pixel, and what is taken for a channel "
        "is another part of the picture. Move the axis of the colours with `permute`, not with `reshape`.",
        (_PERMUTE,),
    )
