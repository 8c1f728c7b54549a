"""What a run has shown of where things are in the user's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Clues:
    """What a run has shown of where things are in the script."""

    places: Mapping[str, Sequence[Mapping[str, Any]]]
    sites: Sequence[Mapping[str, Any]]
    facts: Mapping[str, Any]
    file: str = ""  # the one file that all of it is about

    def files(self) -> set[str]:
        """The files of the user's in which something was seen to be made or called."""
        held = [place for places in self.places.values() for place in places]
        held += [site["place"] for site in self.sites if site["place"]]
        added = [*(self.facts.get("norms") or ()), *(self.facts.get("shortcuts") or ())]
        held += [part["place"] for part in added if part["place"]]
        return {str(place["file"]) for place in held}

    def of(self, file: str) -> Clues:
        """What was shown of one file."""
        places = {kind: [one for one in known if one["file"] == file] for kind, known in self.places.items()}
        sites = [site for site in self.sites if site["place"] and site["place"]["file"] == file]
        return Clues(places, sites, self.facts, file)

    def lines(self, kind: str, path: str) -> list[int]:
        """The lines of a file where something of this kind is made or called."""
        return [int(place["line"]) for place in self.places.get(kind, ()) if place["file"] == path]
