"""What the user of ``akeso run`` asked for, checked before anything is started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from akeso.diagnosis import SEVERITIES, Severity
from akeso.errors import BadInput
from akeso.script import program as programs
from akeso.script.metrics import ChosenMetric
from akeso.script.program import Program

Threshold = Literal["error", "warning", "info", "never"]


def reaches(severity: Severity, threshold: Threshold) -> bool:
    """Whether a finding is at least as severe as a threshold."""
    return threshold != "never" and SEVERITIES.index(severity) <= SEVERITIES.index(threshold)


def _check_profile(profile: str) -> None:
    """A profile of the user's is loaded once before the run; akeso's own need no check."""
    if profile in ("akeso", "autotrainer", "bttackler"):
        return
    from akeso.profiles import load_profile

    load_profile(profile)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run to be made."""

    program: Program
    folder: Path | None = None
    budget: float = 0.01
    profile: str = "akeso"
    metric: ChosenMetric | None = None
    higher_is_better: bool | None = None
    json_file: Path | None = None
    fail_on: Threshold = "warning"
    exit_zero: bool = False
    stop_on: Threshold = "never"
    deterministic: bool = False
    seed: int = 0
    statistics: bool = False
    quiet: bool = False

    @classmethod
    def checked(
        cls,
        script: str,
        arguments: tuple[str, ...],
        is_module: bool = False,
        *,
        folder: Path | None,
        budget: float,
        profile: str,
        metric: str | None,
        higher_is_better: bool | None,
        json_file: Path | None,
        fail_on: Threshold,
        exit_zero: bool,
        stop_on: Threshold,
        deterministic: bool,
        seed: int | None,
        statistics: bool,
        quiet: bool,
    ) -> RunRequest:
        """The request, or :class:`BadInput` for what would only come out at the end of a long training."""
        program = Program(script, arguments, is_module)
        programs.check(program)
        _check_profile(profile)
        if seed is not None and not deterministic:
            raise BadInput(f"--seed {seed} has an effect only together with --deterministic")
        if higher_is_better is not None and metric is None:
            raise BadInput(
                "--higher-is-better and --lower-is-better say how --metric is meant; give --metric too"
            )
        if json_file is not None:
            if json_file.is_dir():
                raise BadInput(f"--json {str(json_file)!r} is a directory; give a file")
            if not json_file.absolute().parent.is_dir():
                raise BadInput(
                    f"--json {str(json_file)!r}: there is no folder {str(json_file.absolute().parent)!r}"
                )
        return cls(
            program=program,
            folder=folder.absolute() if folder is not None else None,
            budget=budget,
            profile=str(Path(profile).absolute()) if Path(profile).is_file() else profile,
            metric=ChosenMetric(metric) if metric is not None else None,
            higher_is_better=higher_is_better,
            json_file=json_file.absolute() if json_file is not None else None,
            fail_on=fail_on,
            exit_zero=exit_zero,
            stop_on=stop_on,
            deterministic=deterministic,
            seed=seed or 0,
            statistics=statistics,
            quiet=quiet,
        )
