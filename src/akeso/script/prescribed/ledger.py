"""What became of every edit while a script ran under its prescription."""

from __future__ import annotations

from typing import Any

from akeso.errors import Stop
from akeso.remedies.edit import Edit, Prescription
from akeso.script.prescribed.places import Place


class Ended(Stop):
    """Ends the script from inside."""


class Ledger:
    """Which edits took effect, which were refused and why, and where in the script they belong."""

    def __init__(self, prescription: Prescription | None = None) -> None:
        self.prescription = prescription if prescription is not None else Prescription()
        self.refused: dict[Edit, str] = {}
        self.notes: list[str] = []
        self.places: dict[str, list[Place]] = {}
        self.facts: dict[str, Any] = {}
        self._applied: set[Edit] = set()
        self._objections: dict[Edit, str] = {}

    def one(self, remedy: str, where: str | None = None) -> Edit | None:
        """The last edit of a remedy, of one place where that is named, unless it was refused."""
        found = [
            edit
            for edit in self.prescription.of(remedy)
            if edit not in self.refused and (where is None or edit.where == where)
        ]
        return found[-1] if found else None

    def mark(self, edit: Edit | None) -> None:
        """The edit took effect."""
        if edit is not None:
            self._applied.add(edit)

    def is_applied(self, edit: Edit) -> bool:
        """Whether the edit took effect at least once."""
        return edit in self._applied

    def object_to(self, edit: Edit, reason: str) -> None:
        """The edit could not be made here; it may still be made elsewhere in the script."""
        self._objections.setdefault(edit, reason)

    def refuse(self, edit: Edit, reason: str) -> None:
        """The edit cannot be made on this script; ends it where nothing else is left to try."""
        self.refused[edit] = reason
        if all(edit in self.refused for edit in self.prescription):
            raise Ended(f"refused: {reason}")

    def settle(self, default: dict[str, str], *, early: bool = False) -> None:
        """Refuse what has had no effect by now, for the reason that was given or the remedy's usual one.

        At an ``early`` time, what concerns the last of several stages has not had its moment yet.
        """
        for edit in self.prescription:
            if early and edit.values.get("stage") == "last":
                continue
            if edit not in self._applied and edit not in self.refused:
                fallback = default.get(edit.remedy, "it found nothing to change in this script")
                self.refuse(edit, self._objections.get(edit, fallback))

    def note(self, text: str) -> None:
        """Say something once."""
        if text not in self.notes:
            self.notes.append(text)

    def place(self, kind: str, place: Place | None) -> None:
        """Remember where in the script something of this kind is made or called."""
        if place is not None and len(known := self.places.setdefault(kind, [])) < 200 and place not in known:
            known.append(place)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values."""
        return {
            "applied": [edit.to_dict() for edit in self.prescription if self.is_applied(edit)],
            "refused": [{"edit": edit.to_dict(), "reason": reason} for edit, reason in self.refused.items()],
            "notes": self.notes,
            "facts": self.facts,
            "places": {kind: [place.to_dict() for place in places] for kind, places in self.places.items()},
        }
