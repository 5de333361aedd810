"""`acqstream ls`, `mv`, `cp` and `rm`: a dataset with its mirrors, levels and notes is one thing."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acqstream.cli.output import JsonOption, print_json, progress_bar, typed_text
from acqstream.errors import AcqStreamError, DatasetError
from acqstream.model.state import AcquisitionState
from acqstream.model.units import count_text, size_text

if TYPE_CHECKING:
    from acqstream.dataset.run_list import ListedRun

_COLUMNS = 80  # of a file or a pipe, whose lines are not cut
_WRITING = frozenset(str(state).lower() for state in AcquisitionState if state.writing)
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = re.compile(r"([<>]?)\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?B?)", re.IGNORECASE)
_AGE = re.compile(r"([0-9]{1,6})\s*(min|h|d|w)")
_AGE_NAMES = {"min": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _since(text: str) -> float:
    """Seconds since 1970 of a date, a time, or an age such as 12h, 7d or 2w. Raises typer.BadParameter."""
    age = _AGE.fullmatch(text)
    try:
        if age is not None:
            return (datetime.now(UTC) - timedelta(**{_AGE_NAMES[age[2]]: int(age[1])})).timestamp()
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"{text!r} is no time; expected for example 2026-11-29, or 12h, 7d, 2w") from error


def _size_range(text: str) -> tuple[float, float]:
    """Bytes, at least and at most. Raises typer.BadParameter."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or found[3].upper() not in _UNITS:
        raise typer.BadParameter(f"{text!r} is no size; expected for example 2GB (at least) or '<500MB' (at most)")
    size = float(found[2]) * _UNITS[found[3].upper()]
    return (0.0, size) if found[1] == "<" else (size, float("inf"))


def ls(
    where: Annotated[
        list[str] | None, typer.Argument(metavar="[DIR] [WORDS]...", help="Directory, by default this one; words.")
    ] = None,
    *,
    since: Annotated[str, typer.Option("--since", help="Runs that began later: 2026-11-29, or 12h, 7d, 2w.")] = "",
    channel: Annotated[str, typer.Option("--channel", help="Runs with a channel whose name has this in it.")] = "",
    size: Annotated[str, typer.Option("--size", help="Runs of at least this size: 2GB; or at most: '<500MB'.")] = "",
    as_json: JsonOption = False,
) -> None:
    """List the runs in a directory and below, the newest first.

    A run is a dataset with its mirrors, levels and notes. Words are looked for in names, channels and texts of the
    summary; a run has all of them, in any case of letters.
    """
    from acqstream.dataset.run_list import list_runs

    top, words = _place_and_words([typed_text(one) for one in where or ()])
    since_s = _since(since) if since else float("-inf")
    least, most = _size_range(size) if size else (0.0, float("inf"))
    found = [
        run
        for run in list_runs(top, on_read=_show_progress)
        if run.began_s >= since_s and least <= run.size_bytes <= most and run.matches(words, typed_text(channel))
    ]
    _end_progress()
    print_runs(top, found, as_json=as_json)


def print_runs(top: Path, runs: Sequence[ListedRun], *, as_json: bool) -> None:
    """Runs below `top` as text of two lines each, or as one JSON document."""
    from acqstream.dataset.run_transfer import interrupted_in

    runs = [_looked_at(top, run) for run in runs]
    if as_json:
        print_json([_plain(top, run) for run in runs])
        return
    columns, is_cut = (shutil.get_terminal_size().columns, True) if sys.stdout.isatty() else (_COLUMNS, False)
    for run in runs:
        print("\n".join(_lines(run, columns, is_cut=is_cut)))
    print(f"{count_text(len(runs), 'run')}, {size_text(sum(run.size_bytes for run in runs))}, in {top}")
    for folder in sorted({top, *((top / run.name).parent for run in runs)}):
        for path in interrupted_in(folder):
            print(f"{path} is of a command that was interrupted: repeat it")


def print_directory(path: Path, *, as_json: bool) -> bool:
    """The runs in a directory and below, as `ls` lists them; False if there are none."""
    from acqstream.dataset.run_list import list_runs
    from acqstream.formats.ndtiff.folders import is_run

    runs = list_runs(path) if path.is_dir() and not is_run(path) else []
    if runs:
        print_runs(path, runs, as_json=as_json)
    return bool(runs)


def _place_and_words(given: Sequence[str]) -> tuple[Path, Sequence[str]]:
    """The directory and the words. A run is no directory of runs: its name is a word."""
    from acqstream.formats.ndtiff.folders import is_run

    is_given = bool(given) and os.path.isdir(given[0])
    top, words = (Path(given[0]), given[1:]) if is_given else (Path(), given)
    if not is_run(top):
        return top, words
    place = Path(os.path.abspath(top))
    return place.parent, [place.name, *words]


def _looked_at(top: Path, run: ListedRun) -> ListedRun:
    """The run with what only locks tell: whether a process records it, or makes its mirrors."""
    from acqstream.mirrors.run_end import is_recorded, mirror_results

    path = top / run.name
    try:
        if "running" in run.mirrors.values():
            run = replace(run, mirrors={one.name: one.state for one in mirror_results(path)})
        if run.state in _WRITING:
            run = replace(run, state=run.state if is_recorded(path.resolve()) else "abandoned")
    except AcqStreamError as error:  # removed meanwhile, or damaged: the list goes on
        run = replace(run, doubt=run.doubt or str(error))
    return run


def _plain(top: Path, run: ListedRun) -> dict[str, Any]:
    return {
        "name": run.name,
        "path": str((top / run.name).absolute()),
        "format": run.format,
        "began_at": datetime.fromtimestamp(run.began_s, UTC).isoformat(timespec="milliseconds"),
        "frames": run.frames,
        "size_bytes": run.size_bytes,
        "axes": dict(run.axes),
        "channels": list(run.channels),
        "state": run.state,
        "mirrors": dict(run.mirrors),
        "parts": list(run.parts),
        "doubt": run.doubt,
    }


def _lines(run: ListedRun, columns: int, *, is_cut: bool) -> list[str]:
    """The name with state and mirrors; then when, how much and which axes. The name is never cut: it can be copied."""
    mirrors = [name if state == "complete" else f"{name} ({state})" for name, state in run.mirrors.items()]
    state = "  ".join(filter(None, [run.state or "-", ", ".join(mirrors)]))
    gap = columns - len(run.name) - len(state)
    first = [f"{run.name}{' ' * gap}{state}"] if gap > 1 else [run.name, f"    {state}"]
    began = datetime.fromtimestamp(run.began_s, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    frames = count_text(run.frames, "frame") if run.format == "ndtiff" else run.format
    facts = f"    {began}  {frames:>13}  {size_text(run.size_bytes):>7}  {run.doubt or _axes_text(run)}".rstrip()
    others = [*first[1:], facts]
    return [first[0], *(_cut(line, columns) if is_cut else line for line in others)]


def _axes_text(run: ListedRun) -> str:
    """For people: "time 193, channel DAPI|GFP, z 3"."""
    names = {"channel": "|".join(run.channels)} if run.channels else {}
    return ", ".join(f"{axis} {names.get(axis, count)}" for axis, count in run.axes.items())


def _cut(line: str, columns: int) -> str:
    return line if len(line) <= columns else f"{line[: columns - 3]}..."


def _show_progress(count: int) -> None:
    """On a terminal, as the first list of a large disk takes a while."""
    if sys.stderr.isatty() and count % 100 == 0:
        print(f"\rreading: {count_text(count, 'run')}", end="", file=sys.stderr, flush=True)


def _end_progress() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


_Run = Annotated[Path, typer.Argument(metavar="RUN", help="The run: the folder of its dataset.")]
_To = Annotated[Path, typer.Argument(metavar="TO", help="The new path, or an existing folder to put it into.")]


def mv(source: _Run, target: _To) -> None:
    """Rename a run, or move it to another folder or disk, with all its parts.

    To another disk it is copied, compared, and then removed. A killed command is finished by the same command.
    """
    from acqstream.dataset.run_transfer import move_run

    source, target = _places(source, target)
    with _progress(source) as on_bytes:
        move_run(source, target, on_bytes=on_bytes)
    print(f"moved {source} to {target}")


def cp(source: _Run, target: _To) -> None:
    """Copy a run with all its parts, and compare the copy with what was read.

    The copy appears when it is complete and forced to the disk. A killed command is finished by the same command.
    """
    from acqstream.dataset.run_transfer import copy_run

    source, target = _places(source, target)
    with _progress(source) as on_bytes:
        copy_run(source, target, on_bytes=on_bytes)
    print(f"copied {source} to {target}, and compared all files")


def rm(
    path: _Run,
    *,
    copy: Annotated[Path | None, typer.Option("--copy", help="A copy, compared with the run before it goes.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also the only copy, and an abandoned run.")] = False,
) -> None:
    """Remove a run with all its parts, or a mirror alone.

    A dataset with frames goes only if --copy names one that has the same files, or with --force.
    """
    from acqstream.dataset.run_files import RunFiles
    from acqstream.dataset.run_transfer import finish_removal, remove_run

    path = _typed(path)
    copy = None if copy is None else _typed(copy).absolute()
    if finish_removal(path):
        print(f"removed {path}: an earlier command had begun it")
        return
    run = RunFiles(path)
    if copy is not None and (not copy.exists() or os.path.samefile(copy, path)):
        raise DatasetError(f"{copy} is no copy of {path}: expected another folder; nothing was removed")
    if run.is_only_copy and copy is None and not force:
        text = f"{path} may be the only copy: name another one with --copy, or remove it with --force"
        raise DatasetError(f"{text}; `acqstream cp` makes one")
    parts = f" with {', '.join(run.parts)}" if run.parts else ""
    if not yes and not typer.confirm(f"Remove {path}{parts}, {size_text(run.size_bytes)}?"):
        raise typer.Exit(1)
    for place in run.mirrors_elsewhere():
        print(f"its mirror at {place} stays")
    remove_run(path, copy=copy, is_forced=force)
    print(f"removed {path}")


def _typed(path: Path) -> Path:
    return Path(typed_text(os.path.normpath(path)))


def _places(source: Path, target: Path) -> tuple[Path, Path]:
    """The run and where it goes: as typed, or into a folder that is no run."""
    from acqstream.formats.ndtiff.folders import is_run

    source, target = _typed(source), _typed(target)
    is_into = target.is_dir() and not is_run(target) and not target.with_name(f"{target.name}.view").exists()
    return source, target / source.absolute().name if is_into else target


@contextmanager
def _progress(source: Path) -> Iterator[Callable[[int], None]]:
    """Count bytes on a terminal."""
    with progress_bar() as shown:
        task = shown.add_task(f"copying {source.name}", total=None)
        yield lambda count: shown.advance(task, count)
