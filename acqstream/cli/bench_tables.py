"""Prints the tables of `acqstream bench`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acqstream.cli.output import console
from acqstream.model.units import count_text, size_text

if TYPE_CHECKING:
    from acqstream.bench.measurement import Latency, Spread
    from acqstream.bench.report import BenchReport, RowReport, SituationReport, Table

_ROLES = ("daemon", "producer")
_READER = ("reader",)
_MAX_COLUMNS = 9


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
