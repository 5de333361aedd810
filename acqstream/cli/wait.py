"""`acqstream wait`: until a run and its mirrors have ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acqstream.cli.output import ExitCode, JsonOption, print_json, progress_bar
from acqstream.model.units import count_text

if TYPE_CHECKING:
    from acqstream.mirrors.run_end import DatasetEnd


def wait(
    path: Annotated[Path, typer.Argument(help="A dataset that acqstream writes or has written, or a file in it.")],
    *,
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", min=0, help="Seconds to wait [default: for ever].", show_default=False)
    ] = None,
    patience_s: Annotated[
        float, typer.Option("--patience", min=0, help="Seconds to wait while no process writes what has not ended.")
    ] = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Wait until a run and all its mirrors have ended.

    Levels of tiles count as mirrors. Looks at files only: no daemon is asked, and none has to run. Ends with 0 if all
    are complete, with 3 if frames are missing or a mirror is not complete, with 124 when the time is over, with 69 if
    something is unfinished and no process continues it. A mirror that was removed after its end does not count.
    """
    from acqstream.mirrors.run_end import wait_for_end

    with progress_bar() as bar:
        task = bar.add_task(str(path), total=None)

        def show(now: DatasetEnd) -> None:
            waiting = [mirror.name for mirror in now.mirrors if not mirror.ended]
            bar.update(task, description=f"{now.path}: {_run_text(now)}; {', '.join(waiting) or 'no mirror'} to come")

        end = wait_for_end(path, timeout_s=timeout_s, patience_s=patience_s, on_look=show)
    code = _exit_code(end)
    if as_json:
        print_json({**end.as_dict(), "ok": end.ok})
    else:
        _print_end(end, timeout_s)
    raise typer.Exit(code)


def _exit_code(end: DatasetEnd) -> ExitCode:
    if end.ok:
        return ExitCode.OK
    if end.outcome == "timeout":
        return ExitCode.TIMEOUT
    return ExitCode.UNAVAILABLE if end.outcome == "abandoned" else ExitCode.INCOMPLETE


def _print_end(end: DatasetEnd, timeout_s: float | None) -> None:
    print(f"{end.path}: {_run_text(end)}")
    width = max((len(mirror.name) for mirror in end.mirrors), default=0) + 2
    for mirror in end.mirrors:
        print(f"{mirror.name:<{width}}{mirror.text}")
        if mirror.warning:
            print(f"{'':<{width}}warning: {mirror.warning}")
    if end.outcome == "timeout":
        print(f"not ended within {timeout_s:g} s")
    elif end.outcome == "abandoned":
        print("no process continues it; start the daemon on this data directory: acqstream serve --data DIR")


def _run_text(end: DatasetEnd) -> str:
    state = end.state.lower()
    if not end.state.final:
        return end.sentence or (f"{state}: {end.reason}" if end.reason else state)
    ending = end.sentence or (f"{state}: {end.reason}" if end.reason else state)
    return f"{ending}; {count_text(end.stored, 'frame')} stored"
