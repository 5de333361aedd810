"""`acqstream bench`: how fast this machine writes and reads, next to its limits and to other writers."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acqstream.cli.output import JsonOption, console, print_json, progress_bar
from acqstream.model.units import count_text, size_text

if TYPE_CHECKING:
    from acqstream.bench.comparison import BenchSettings, Observer
    from acqstream.bench.measurement import BenchReport, Latency, RowReport, SituationReport, Spread, Table

_SUSTAINED_BYTES, _SUSTAINED_PAIRS = 8_000_000_000, 5
_QUICK_BYTES, _QUICK_PAIRS, _QUICK_FRAMES = 1_000_000_000, 1, 50_000
_QUICK_ROWS = ("ndstorage", "acquire-zarr", "shm", "ipc", "tcp")
_ROLES, _READER = ("daemon", "producer"), ("reader",)
_MAX_COLUMNS = 9
_FULL_FRAME = (2048, 2048)
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


def bench(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="About two minutes; flatters writers that buffer.")] = False,
    size: Annotated[
        str | None,
        typer.Option(
            "--bytes", metavar="SIZE", help="Pixels of one run, e.g. 500MB [default: 8GB; quick, mirror 1GB]."
        ),
    ] = None,
    pairs: Annotated[int | None, typer.Option(min=1, help="Runs of each row [default: 5; quick, mirror 1].")] = None,
    rows: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Which rows, e.g. ndstorage,ipc; shm-many and ipc-close only so."),
    ] = None,
    directory: Annotated[
        Path, typer.Option("--dir", help="Folder to write to. The files are deleted afterwards.")
    ] = Path(),
    memory_mb: Annotated[int | None, typer.Option(min=16, help="Memory of the daemon [default: its own].")] = None,
    reading: Annotated[bool, typer.Option("--reading", help="Measure reading instead.")] = False,
    mirror: Annotated[bool, typer.Option("--mirror", help="Measure mirrors instead; about three minutes.")] = False,
    mirrors: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Which mirrors of --mirror, e.g. n5,wkw.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how fast frames are written here; with an option, what else is to be known.

    Each row runs in turn with the limit of the disk; the time goes from the first frame until all are durable.
    """
    from acqstream.bench.child_process import cleaned_up_if_interrupted
    from acqstream.bench.comparison import MAX_FRAMES, ROWS, USUAL_ROWS, BenchSettings

    if reading and mirror:
        raise typer.BadParameter("only one of them at a time", param_hint="--reading and --mirror")
    if mirrors is not None and not mirror:
        raise typer.BadParameter("belongs to --mirror", param_hint="--mirrors")
    settings = BenchSettings(
        directory=directory,
        payload_bytes=bytes_of(size) if size else (_QUICK_BYTES if quick or mirror else _SUSTAINED_BYTES),
        pairs=pairs or (_QUICK_PAIRS if quick or mirror else _SUSTAINED_PAIRS),
        rows=_rows(rows, tuple(ROWS)) or (_QUICK_ROWS if quick else USUAL_ROWS),
        daemon_memory_mb=memory_mb,
        max_frames=_QUICK_FRAMES if quick else MAX_FRAMES,
    )
    run = _benchmark(names_of(mirrors), reading=reading, mirror=mirror)
    with cleaned_up_if_interrupted(), progress_bar() as bar:
        task = bar.add_task("starting", total=None)
        report = run(
            settings, lambda text, done, total: bar.update(task, description=text, completed=done, total=total)
        )
    if as_json:
        print_json(report.as_dict())
        return
    print_bench_report(report, settings.payload_bytes)
    if quick:
        print(
            "Short runs flatter writers that buffer: the page cache takes the first gigabytes at the speed of memory."
        )
    if last := last_line(report):
        print(last)


def _benchmark(
    mirrors: tuple[str, ...], *, reading: bool, mirror: bool
) -> Callable[[BenchSettings, Observer], BenchReport]:
    if mirror:
        from acqstream.bench.mirror import run_mirror_benchmark

        return partial(run_mirror_benchmark, names=mirrors)
    if reading:
        from acqstream.bench.reading import run_reading_benchmark

        return run_reading_benchmark
    from acqstream.bench.comparison import run_benchmark

    return run_benchmark


def bytes_of(text: str) -> int:
    """The number in a size. Raises BadParameter."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]+)?) *([kmg]?)b?", text.strip().lower())
    if match is None or float(match[1]) <= 0:
        raise typer.BadParameter(f"{text!r} is not a size; examples: 8GB, 500MB, 1000000", param_hint="--bytes")
    return int(float(match[1]) * _FACTORS[match[2]])


def names_of(text: str | None) -> tuple[str, ...]:
    """The names between commas."""
    return () if text is None else tuple(part.strip() for part in text.split(","))


def _rows(text: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    if text is None:
        return ()
    wanted = names_of(text)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise typer.BadParameter(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}", param_hint="--rows")
    return wanted


def print_bench_report(report: BenchReport, payload_bytes: int) -> None:
    """Prints the machine and the method, then all tables. payload_bytes: requested size of one run."""
    machine = report.machine
    print(
        f"acqstream {report.version} on {machine['system']}, Python {machine['python']}, "
        f"{machine['processors']} processors, {machine['kernels']} kernels, {machine['file_system']} at "
        f"{report.directory}, {report.date}"
    )
    if report.situations:
        how = "each after a run of the limit; from the first frame until durable"
        if any(situation.title for situation in report.situations):
            how = "in turn with what stands beside"
        print(f"medians of {count_text(report.pairs, 'run')} of {size_text(payload_bytes)}, {how}")
    for situation in report.situations:
        _print_situation(situation)
    for table in report.tables:
        _print_table(table)


def last_line(report: BenchReport) -> str:
    """The rate of full frames here, by the best way of sending them; "" if none was measured."""
    from acqstream.bench.measurement import LIMIT

    rates = [
        row.frames_per_s
        for situation in report.situations
        if situation.shape[:2] == _FULL_FRAME and not situation.title
        for row in situation.rows
        if row.frames_per_s is not None and row.name not in (LIMIT, *situation.peers)
    ]
    height, width = _FULL_FRAME
    return f"{height} x {width} at up to {max(rates):,.0f} frames a second here" if rates else ""


def _print_situation(situation: SituationReport) -> None:
    from rich.box import SIMPLE
    from rich.table import Table

    sides = " x ".join(str(side) for side in situation.shape)
    title = situation.title or f"{sides} {situation.dtype}, {count_text(situation.frames, 'frame')}"
    call, roles = ("frame", _READER) if situation.title else ("put", _ROLES)
    table = Table(box=SIMPLE, title=title, title_justify="left", caption_justify="left")
    table.add_column("row")
    for heading in (
        "GB/s",
        "of the limit",
        f"x {' / '.join(situation.peers) or 'others'}",
        "frames/s",
        f"{call} ms p50 / p99 / p99.9 / max",
        f"CPU s/GB {' / '.join(roles)}",
        f"peak MB {' / '.join(roles)}",
    ):
        table.add_column(heading, justify="right")
    notes: list[str] = []
    for row in situation.rows:
        if row.absent:
            notes.append(f"{row.name}: {row.absent}")
        else:
            table.add_row(row.name, *_cells(row, roles, situation.peers))
        if situation.title and row.runs and row.runs[0].note:
            notes.append(f"{row.name}: {row.runs[-1].note}")
    table.caption = "; ".join(notes)
    console().print(table)


def _cells(row: RowReport, roles: tuple[str, ...], peers: tuple[str, ...]) -> tuple[str, ...]:
    rate = f"{row.bytes_per_s.median / 1e9:.2f}" if row.bytes_per_s else "-"
    cpu = " / ".join(f"{row.cpu_s_per_gb[role]:.2f}" if role in row.cpu_s_per_gb else "-" for role in roles)
    peak = " / ".join(_megabytes(row.peak_bytes.get(role)) for role in roles)
    frames = f"{row.frames_per_s:,.0f}" if row.frames_per_s is not None else "-"
    return (rate, _ratio(row.to_limit), _peers(row, peers), frames, _milliseconds(row.latency), cpu, peak)


def _ratio(spread: Spread | None) -> str:
    return f"{spread.median:.2f} [{spread.low:.2f}, {spread.high:.2f}]" if spread else "-"


def _peers(row: RowReport, peers: tuple[str, ...]) -> str:
    if len(peers) == 1:
        return _ratio(row.to_peers.get(peers[0]))
    return " / ".join(f"{row.to_peers[peer].median:.2g}" for peer in peers if peer in row.to_peers) or "-"


def _milliseconds(latency: Latency | None) -> str:
    if latency is None:
        return "-"
    return " / ".join(f"{value:.3g}" for value in (latency.p50_ms, latency.p99_ms, latency.p999_ms, latency.max_ms))


def _megabytes(size_bytes: int | None) -> str:
    return f"{size_bytes / 1e6:,.0f}" if size_bytes is not None else "-"


def _print_table(table: Table) -> None:
    """One line for each figure if there are many of them, else one for each row."""
    from rich.box import SIMPLE
    from rich.table import Table as Grid

    headings = list(dict.fromkeys(key for row in table.rows for key in row))
    grid = Grid(box=SIMPLE, title=table.title, title_justify="left", caption=table.note, caption_justify="left")
    first = headings[0]
    if len(headings) > _MAX_COLUMNS:
        grid.add_column("")
        for row in table.rows:
            grid.add_column(_figure(row[first]), justify="right")
        for heading in headings[1:]:
            grid.add_row(_words(heading), *(_figure(row.get(heading)) for row in table.rows))
    else:
        for heading in headings:
            grid.add_column(_words(heading), justify="left" if heading == first else "right")
        for row in table.rows:
            grid.add_row(*(_figure(row.get(heading)) for heading in headings))
    console().print(grid)


def _words(heading: str) -> str:
    return heading.replace("_", " ")


def _figure(value: str | float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:.3g}"
