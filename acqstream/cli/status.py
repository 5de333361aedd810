"""`acqstream status`: prints the status of a daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from acqstream.cli.endpoint import DataOption, EndpointOption, endpoint_for
from acqstream.cli.output import console, print_json
from acqstream.model.units import count_text, duration_text, rate_text, size_text

if TYPE_CHECKING:
    from acqstream.model.status import AcquisitionStatus, DaemonStatus, LoadStatus


def status(
    *,
    endpoint: EndpointOption = None,
    data: DataOption = None,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait for an answer.")] = 3.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Show what a daemon is doing.

    Show what runs: progress, rates, and how long the disk space will last. Exits with 0 if the daemon answers.
    """
    from acqstream.client.status import fetch_status

    answer = fetch_status(endpoint_for(endpoint, data), timeout_s=timeout_s)
    if as_json:
        print_json(answer.as_dict())
    else:
        _print_daemon(answer)


def _print_daemon(answer: DaemonStatus) -> None:
    free = "free space unknown" if answer.free_bytes is None else f"{size_text(answer.free_bytes)} free"
    print(
        f"acqstream {answer.version} at {answer.endpoint}, up {duration_text(answer.uptime_s)}\n"
        f"data   {answer.data} ({free})\n"
        f"memory {size_text(answer.memory_used_bytes)} of {size_text(answer.memory_budget_bytes)} used, "
        f"at most {size_text(answer.memory_peak_bytes)}"
    )
    _print_load(answer.load)
    if answer.views.kernels:
        print(f"views  {answer.views.kernels} kernels")
    _print_mirrors(answer)
    if any(answer.left_out.values()):
        print(
            "not shown, as there are so many:", ", ".join(f"{n:,} {what}" for what, n in answer.left_out.items() if n)
        )
    if not answer.acquisitions:
        print("no acquisition is running")
        return
    _print_table(answer.acquisitions)
    for acquisition in answer.acquisitions:
        if acquisition.io_why:
            print(f"{acquisition.name}: buffered I/O: {acquisition.io_why}")
        if acquisition.transport_why:
            print(f"{acquisition.name}: no shared memory: {acquisition.transport_why}")
        if acquisition.paused:
            print(f"{acquisition.name}: PAUSED: {acquisition.paused}")
        if acquisition.stall:
            print(f"{acquisition.name}: the disk stalls: {acquisition.stall}")
        for code, text, _ in acquisition.warnings:
            print(f"{acquisition.name}: warning {code}: {text}")


def _print_load(load: LoadStatus) -> None:
    if load.processor_percent is None:
        return  # a daemon of an earlier version, or one that has just started
    print(
        f"load   {load.processor_percent:.0f}% of {count_text(load.processors, 'processor')}, "
        f"{size_text(load.available_memory_bytes)} of {size_text(load.total_memory_bytes)} memory available\n"
        f"daemon {load.daemon_processor_percent or 0:.0f}% of one processor, "
        f"{size_text(load.daemon_memory_bytes)} memory, priority {load.priority}"
    )
    if load.disk_write_bytes_per_s is not None:
        busy = "" if load.disk_busy_percent is None else f", {load.disk_busy_percent:.0f}% busy"
        print(f"disk   {load.disk} writes {rate_text(load.disk_write_bytes_per_s)}{busy}")


def _print_mirrors(answer: DaemonStatus) -> None:
    for mirror in answer.views.mirrors:
        reason = f" ({mirror.reason})" if mirror.reason else ""
        print(f"mirror {mirror.mirror} of {mirror.path}: {mirror.state}, {mirror.behind:,} frames behind{reason}")


def _print_table(acquisitions: tuple[AcquisitionStatus, ...]) -> None:
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE)
    for heading in ("acquisition", "state", "I/O"):
        table.add_column(heading, overflow="fold")
    for heading in ("sent", "received", "published", "durable", "queue", "stored", "rate", "space lasts"):
        table.add_column(heading, justify="right")
    for acquisition in acquisitions:
        table.add_row(
            acquisition.name,
            acquisition.state,
            acquisition.io,
            f"{acquisition.sent:,}" if acquisition.sent is not None else "-",
            f"{acquisition.received:,}",
            f"{acquisition.published:,}",
            f"{acquisition.durable:,}",
            f"{count_text(acquisition.queue_frames, 'frame')}, {size_text(acquisition.queue_bytes)}",
            size_text(acquisition.payload_bytes),
            rate_text(acquisition.bytes_per_s),
            duration_text(acquisition.seconds_left) if acquisition.seconds_left is not None else "-",
        )
    console().print(table)
