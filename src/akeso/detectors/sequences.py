"""Models of sequences that see what they are to say, or do not know which place it belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from akeso.detectors import network
from akeso.detectors._base import Detector
from akeso.detectors.standing import standing
from akeso.diagnosis import Symptom
from akeso.history import History


@dataclass(frozen=True)
class SequenceLeak(Detector):
    """A model of sequences is given what it is to say."""

    name: ClassVar[str] = "sequence-leak"

    def detect(self, history: History) -> Iterator[Symptom]:
        if history.events_of("depends-copied"):
            yield self._found(
                history,
                "The targets are the very tokens that the model is given at the same places: it learns to copy them. "
                "Targets of a language model are the tokens one place further on.",
            )
            return
        if any(event.data.get("what") == "softmax" for event in history.events_of("axes")):
            return  # the mask is there, and the softmax goes past it
        if history.events_of("depends-ahead"):
            yield self._found(
                history,
                "The model sees the tokens that it is to predict: its answer at a place depends on the tokens after "
                "it. A causal mask is missing, or does not cover them.",
            )
            return

    def _found(self, history: History, sentence: str) -> Symptom:
        evidence = {**standing(history).evidence(), "input_shape": history.facts.get("input_shape")}
        return Symptom(self.name, "error", 0.95, network.extent(history)[0], "", evidence, sentence)


@dataclass(frozen=True)
class WrongPlaces(Detector):
    """Targets lie further on than the next token, or depend on places that the model is not told."""

    name: ClassVar[str] = "wrong-places"
    remaining: float = 0.8

    def detect(self, history: History) -> Iterator[Symptom]:
        for event in history.events_of("depends-beyond"):
            by = int(event.data.get("by", 2))
            yield self._found(
                history,
                f"The targets are the tokens {by} places further on: nothing ever asks for the next one, and what the "
                "model writes by itself leaves tokens out. Are they shifted twice, by the script and inside of the "
                "model?",
                (
                    "Shift once: give tokens `[:-1]` and take tokens `[1:]` for the targets, or hand the same tokens "
                    "to a model that shifts them itself.",
                ),
            )
            return
        for event in history.events_of("depends-first"):
            if not standing(history).suffers(self.remaining):
                return  # that is where it stands
            yield self._found(
                history,
                f"Answers come from the first of {event.data.get('by')} tokens alone, and hardly anything is learnt "
                "from it: what has read the whole sequence is the state after the last one.",
                (
                    "Take the last state of what reads from the beginning on: `states[:, -1]`, or the one after the "
                    "last token that is no padding.",
                    "Let only what sees the whole sequence from everywhere answer at its first place.",
                ),
            )
            return
        if history.events_of("depends-padding"):
            if not standing(history).suffers(self.remaining):
                return
            yield self._found(
                history,
                "Answers come from the padding alone: no token that a sequence is made of reaches them, only what "
                "fills up short ones.",
                (
                    "See which way round a mask is meant: 1 for what is there in `attention_mask`, True for what is to "
                    "be left out in `key_padding_mask`.",
                ),
            )
            return
        if history.events_of("depends-unplaced"):
            yield self._found(
                history,
                "The model does not know where a token stands: wherever the same one occurs in a sample it gives the "
                "same answer, though the targets there are not the same.",
                (
                    "Add an embedding of the places to that of the tokens, or any other encoding of positions, before "
                    "the first attention.",
                ),
            )
            return

    def _found(self, history: History, sentence: str, helps: tuple[str, ...]) -> Symptom:
        evidence = {**standing(history).evidence(), "input_shape": history.facts.get("input_shape")}
        return Symptom(self.name, "error", 0.95, network.extent(history)[0], "", evidence, sentence, helps)
