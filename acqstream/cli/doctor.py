"""`acqstream doctor`: what will hurt on this PC, and how to mend it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acqstream.cli.output import ExitCode, JsonOption, print_json
from acqstream.model.units import count_text

if TYPE_CHECKING:
    from acqstream.doctor.checks import CheckResult
    from acqstream.doctor.verdict import PlannedCamera
    from acqstream.model.status import DaemonStatus

DOCUMENT_VERSION = 1
_ANSWER_S = 1.0
_MARKS = {"ok": "ok     ", "unknown": "?      ", "warning": "WARNING", "problem": "PROBLEM"}


class PlannedDepth(StrEnum):
    UINT8 = "uint8"
    UINT16 = "uint16"


def doctor(
    *,
    data: Annotated[Path, typer.Option(help="The data directory.")] = Path(),
    config: Annotated[Path | None, typer.Option(help="Configuration of the daemon (TOML).")] = None,
    frame: Annotated[
        str | None, typer.Option(metavar="Y,X[,3]", help="Height and width of the planned camera.", show_default=False)
    ] = None,
    dtype: Annotated[PlannedDepth, typer.Option(help="Its pixel type.")] = PlannedDepth.UINT16,
    fps: Annotated[float | None, typer.Option(min=0.001, help="Its frames per second.", show_default=False)] = None,
    as_json: JsonOption = False,
) -> None:
    """Check this PC: what will hurt, and how to mend it.

    Writes into the data directory for some seconds, unless something is being recorded. Exits with 0 if there is no
    problem; warnings do not change that.
    """
    from acqstream.daemon.config import load_config
    from acqstream.doctor.checks import CheckResult, run_checks
    from acqstream.doctor.verdict import Examination, Severity, problem, worst
    from acqstream.errors import ConfigError

    try:
        settings = load_config(config, data=data)
        if not data.is_dir():
            raise typer.BadParameter(f"{data} is not a directory", param_hint="--data")
        camera = _camera(frame, dtype, fps)
    except (ConfigError, typer.BadParameter) as error:
        if as_json:
            wrong = CheckResult("arguments", problem(f"{error}.", "Correct the option, or make the directory."), {})
            print_json(_document([wrong], Severity.PROBLEM))
        raise
    examination = Examination(data=data.absolute(), camera=camera, config=settings, status=_status(data))
    results: list[CheckResult] = []
    for result in run_checks(examination):
        results.append(result)
        if not as_json:
            _print(result)
    level = worst([result.verdict.level for result in results])
    if as_json:
        print_json(_document(results, level))
    else:
        counts = [
            sum(result.verdict.level is one for result in results) for one in (Severity.PROBLEM, Severity.WARNING)
        ]
        print(f"{count_text(counts[0], 'problem')}, {count_text(counts[1], 'warning')}")
    if level is Severity.PROBLEM:
        raise typer.Exit(ExitCode.ERROR)


def _print(result: CheckResult) -> None:
    print(f"{_MARKS[result.verdict.level]} {result.check}: {result.verdict.what}")
    if result.verdict.remedy:
        print(f"        {result.verdict.remedy}")


def _document(results: list[CheckResult], level: str) -> dict[str, object]:
    checks = [
        {
            "check": result.check,
            "level": result.verdict.level,
            "what": result.verdict.what,
            "remedy": result.verdict.remedy,
            "facts": result.facts,
        }
        for result in results
    ]
    return {"version": DOCUMENT_VERSION, "worst": level, "checks": checks}


def _camera(frame: str | None, dtype: PlannedDepth, fps: float | None) -> PlannedCamera | None:
    from acqstream.doctor.verdict import PlannedCamera

    if frame is None and fps is None:
        return None
    if frame is None or fps is None:
        raise typer.BadParameter("a camera needs both, e.g. --frame 2048,2048 --fps 100", param_hint="--frame, --fps")
    sides = frame.split(",")
    if len(sides) not in (2, 3) or not all(side.isdecimal() and int(side) for side in sides):
        raise typer.BadParameter(f"{frame!r} must be Y,X or Y,X,3, e.g. 2048,2048", param_hint="--frame")
    return PlannedCamera(tuple(map(int, sides)), 1 if dtype is PlannedDepth.UINT8 else 2, fps)


def _status(data: Path) -> DaemonStatus | None:
    """The status of the daemon that has the directory, else of the default one; None if none answers."""
    from acqstream.client.daemon_requests import fetch_status
    from acqstream.client.directory_daemon import endpoint_of
    from acqstream.errors import AcqStreamError

    try:
        endpoint = endpoint_of(data)
    except AcqStreamError:
        endpoint = None
    try:
        return fetch_status(endpoint, timeout_s=_ANSWER_S)
    except AcqStreamError:
        return None
