"""Axes that are taken for others: along the samples of a batch, by a reshape, or in an attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from akeso.detectors import network
from akeso.detectors._base import Detector
from akeso.detectors.pictures import scrambled
from akeso.diagnosis import Symptom
from akeso.history import Event, History

#: What is said of axes that are mixed up inside of a model, and what helps, by what was seen.
_INSIDE: Final = {
    "order": (
        "A reshape{where} gives values of shape {before} another order of axes, {after}: every value ends up where "
        "another one belongs. Use `transpose` or `permute`.",
        "Where axes change places, use `transpose` or `permute`; `reshape` and `view` leave all values where they lie.",
    ),
    "states": (
        "The last states of a recurrent layer, {before} for layers or directions, samples and units, are reshaped to "
        "{after}{where}: what belongs to different samples ends up in one row.",
        "Put the samples first before the rest is joined: `states.transpose(0, 1).flatten(1)`, or "
        "`torch.cat([states[-2], states[-1]], dim=1)`.",
    ),
    "softmax": (
        "The weights of an attention{where}, of shape {before}, sum to one over axis {after[0]}, but the values are "
        "summed up over another one: what comes out is no average of them, and depends on what it must not see.",
        "Take the softmax over the axis that is summed over, the one of the keys: `softmax(dim=-1)` where the weights "
        "stand left of the values.",
    ),
    "samples": (
        "Answers of the model{where}, of shape {after}, are brought to a sum of one over the samples of a batch, by a "
        "softmax over the first axis: what is said of one sample depends on which others stand beside it.",
        "Take the softmax over the last axis, `softmax(dim=-1)`: it is to sum to one for every sample.",
    ),
    "heads": (
        "An attention{where} runs along the wrong axis: the model is given {before[1]} moments, which stand where the "
        "heads belong (weights of shape {after}), so that every moment looks at nothing but itself.",
        "Put the heads before the moments: `x.view(samples, moments, heads, -1).transpose(1, 2)`, and back again after "
        "the attention.",
    ),
}


@dataclass(frozen=True)
class WrongAxis(Detector):
    """Something runs along the samples of a batch, or puts the axes of its answers in another order by a reshape."""

    name: ClassVar[str] = "wrong-axis"

    def detect(self, history: History) -> Iterator[Symptom]:
        layer = history.facts.get("recurrence_over_samples")
        if isinstance(layer, str):
            yield self._over_samples(history, layer)
            return
        yield from scrambled(history, self.name)
        for event in history.events_of("reshaped"):
            yield self._reshaped(event)
            return
        for event in history.events_of("axes"):
            yield self._inside(event)
            return
        if history.events_of("depends-others"):
            yield Symptom(
                self.name,
                "error",
                0.95,
                network.extent(history)[0],
                "",
                {"input_shape": history.facts.get("input_shape")},
                "What is said of one sample depends on the others of its batch: something between the embedding and "
                "the answers runs along the samples, or mixes them up with the positions.",
            )
            return

    def _over_samples(self, history: History, layer: str) -> Symptom:
        kind = next((one.kind for one in history.layers if one.name == layer), "")
        attends = kind == "MultiheadAttention"
        return Symptom(
            self.name,
            "error",
            0.95,
            network.extent(history)[0],
            layer,
            {"input_shape": history.facts.get("input_shape")},
            f"{network.called(layer) or kind or 'the recurrent layer'} runs along the samples of a batch instead of "
            "along time: "
            + (
                "each sample looks at the others of its batch."
                if attends
                else "each sample is read as the moment that follows the one before it."
            ),
        )

    def _inside(self, event: Event) -> Symptom:
        sentence, helps = _INSIDE[str(event.data.get("what"))]
        before, after = list(shape_of(event, "before")), list(shape_of(event, "after"))
        where = f" in {network.called(event.scope)}" if event.scope else ""
        return Symptom(
            self.name,
            "error",
            0.95,
            event.step,
            event.scope,
            {"before": before, "after": after},
            sentence.format(where=where, before=before, after=after),
            (helps,),
        )

    def _reshaped(self, event: Event) -> Symptom:
        before, after = shape_of(event, "before"), shape_of(event, "after")
        return Symptom(
            self.name,
            "error",
            0.95,
            event.step,
            "",
            {"before": list(before), "given_to_the_loss": list(after)},
            f"Answers of shape {list(before)} are given another order of axes, {list(after)} at the loss, by a "
            "reshape: every value ends up where another one belongs. Use `transpose` or `permute`.",
        )


def shape_of(event: Event, name: str) -> tuple[int, ...]:
    """A shape that an event was noted with."""
    found = event.data.get(name) or ()
    return tuple(int(length) for length in found)
