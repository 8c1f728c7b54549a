"""What BTTackler's seven indicators say of a training that was watched, whatever profile it was watched under."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from akeso.search.recorded import Finding

#: The profile of detectors that the indicators are.
SEVEN: Final = "bttackler"


def indicators(history: Any) -> list[Finding]:
    """The first epoch in which each of the seven indicators was positive, as far as the steps that were read show."""
    from akeso.profiles import load_profile

    found = []
    with np.errstate(all="ignore"):
        for detector in load_profile(SEVEN).detectors:
            for symptom in detector.detect(history):
                found.append(
                    Finding(
                        SEVEN,
                        symptom.problem,
                        float(symptom.evidence.get("epoch", 1)),
                        "",
                        symptom.step,
                        symptom.severity,
                        symptom.confidence,
                        symptom.sentence[:300],
                    )
                )
    return found
