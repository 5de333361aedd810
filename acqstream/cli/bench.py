"""`acqstream bench`: how fast this machine writes, next to its limit and to another writer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acqstream.cli.output import console, print_json, progress_bar
from acqstream.cli.units import count_text, size_text

if TYPE_CHECKING:
    from acqstream.bench.comparison import BenchSettings
    from acqstream.bench.measurement import Latency, Spread
    from acqstream.bench.report import BenchReport, RowReport, SituationReport

_SUSTAINED_BYTES, _SUSTAINED_PAIRS = 8_000_000_000, 5
_QUICK_BYTES, _QUICK_PAIRS = 1_500_000_000, 3
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_ROLES = ("daemon", "producer")
_READER = ("reader",)


def bench(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="About two minutes; flatters writers that buffer.")] = False,
    size: Annotated[
        str | None,
        typer.Option("--bytes", metavar="SIZE", help="Pixels of one run, e.g. 500MB [default: 8GB, quick 1.5GB]."),
    ] = None,
    pairs: Annotated[int | None, typer.Option(min=1, help="Runs of each row [default: 5, quick 3].")] = None,
    rows: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Which rows, e.g. ndstorage,ipc; ipc-close and ipc-batch only so."),
    ] = None,
    directory: Annotated[
        Path, typer.Option("--dir", help="Where to write; what is written is deleted again.")
    ] = Path(),
    memory_mb: Annotated[int | None, typer.Option(min=16, help="Memory of the daemon [default: its own].")] = None,
    reading: Annotated[bool, typer.Option("--reading", help="Measure reading instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Measure how fast frames are written here, or with --reading how fast they are read.

    Each row runs in turn with the limit of the disk; the time goes from the first frame until all are durable.
    """
    from acqstream.bench.comparison import BenchSettings, run_benchmark
    from acqstream.bench.reading import run_reading_benchmark
    from acqstream.bench.row import ROWS, USUAL_ROWS

    settings = BenchSettings(
        directory=directory,
        payload_bytes=_bytes(size) if size else (_QUICK_BYTES if quick else _SUSTAINED_BYTES),
        pairs=pairs or (_QUICK_PAIRS if quick else _SUSTAINED_PAIRS),
        rows=_rows(rows, tuple(ROWS)) or USUAL_ROWS,
        daemon_memory_mb=memory_mb,
    )
    with progress_bar() as bar:
        task = bar.add_task("starting", total=None)
        report = (run_reading_benchmark if reading else run_benchmark)(
            settings, lambda text, done, total: bar.update(task, description=text, completed=done, total=total)
        )
    if as_json:
        print_json(report.as_dict())
    else:
        _print_report(report, settings)


def _bytes(text: str) -> int:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]+)?) *([kmg]?)b?", text.strip().lower())
    if match is None or float(match[1]) <= 0:
        raise typer.BadParameter(f"{text!r} is no size; examples: 8GB, 500MB, 1000000", param_hint="--bytes")
    return int(float(match[1]) * _FACTORS[match[2]])


def _rows(text: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    if text is None:
        return ()
    wanted = tuple(part.strip() for part in text.split(","))
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise typer.BadParameter(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}", param_hint="--rows")
    return wanted


def _print_report(report: BenchReport, settings: BenchSettings) -> None:
    machine = report.machine
    how = "each after a run of the limit; from the first frame until durable"
    if any(situation.title for situation in report.situations):
        how = "in turn with what stands beside"
    print(
        f"acqstream {report.version} on {machine['system']}, Python {machine['python']}, "
        f"{machine['processors']} processors, {machine['file_system']} at {report.directory}\n"
        f"medians of {report.pairs} runs of {size_text(settings.payload_bytes)}, {how}"
    )
    for situation in report.situations:
        _print_situation(situation)


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
        table.add_row(row.name, *_cells(row, roles, situation.peers))
        if situation.title and row.runs and row.runs[0].note:
            notes.append(f"{row.name}: {row.runs[-1].note}")
    table.caption = "; ".join(notes)
    console().print(table)


def _cells(row: RowReport, roles: tuple[str, ...], peers: tuple[str, ...]) -> tuple[str, ...]:
    if row.absent:
        return (row.absent,)
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
