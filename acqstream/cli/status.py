"""`acqstream status`: prints the status of a daemon."""

from __future__ import annotations

import io
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from acqstream.cli.endpoint import DataOption, EndpointOption, endpoint_for
from acqstream.cli.output import JsonOption, console, error_line, print_json
from acqstream.errors import DaemonUnavailable
from acqstream.model.units import count_text, duration_text, rate_text, size_text

if TYPE_CHECKING:
    from acqstream.model.status import AcquisitionStatus, DaemonStatus, LoadStatus

COLUMNS = 80
WATCH_S = 1.0  # between two looks
_INDENT = " " * 7  # of folded lines


def status(
    *,
    endpoint: EndpointOption = None,
    data: DataOption = None,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait for an answer.")] = 3.0,
    watch: Annotated[bool, typer.Option("--watch", help="Look again each second, until Ctrl-C.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a daemon is doing.

    Show what runs: progress, rates, and how long the disk space will last. Exits with 0 if the daemon answers.
    """
    from acqstream.client.daemon_requests import fetch_status

    def show() -> None:
        answer = fetch_status(endpoint_for(endpoint, data), timeout_s=timeout_s)
        if as_json:
            print_json(answer.as_dict())
        else:
            _print_daemon(answer)

    show()
    try:
        while watch:
            sys.stdout.flush()
            time.sleep(WATCH_S)
            _show_again(show)
    except KeyboardInterrupt:
        return


def _show_again(show: Callable[[], None]) -> None:
    """Print a later status: on a terminal in the place of the last one, else after it. The daemon may be restarting."""
    is_terminal = sys.stdout.isatty()
    with redirect_stdout(io.StringIO()) as shown:
        try:
            show()
        except DaemonUnavailable as error:
            print(error_line(error), file=shown if is_terminal else sys.stderr)
    lines = shown.getvalue().splitlines()
    if is_terminal:
        n_fitting = shutil.get_terminal_size().lines - 1
        lines = lines if len(lines) <= n_fitting else [*lines[: n_fitting - 1], "..."]
        console().clear()
    elif lines:
        lines.insert(0, "")
    print("".join(f"{line}\n" for line in lines), end="")


def _print_daemon(answer: DaemonStatus) -> None:
    free = "free space unknown" if answer.free_bytes is None else f"{size_text(answer.free_bytes)} free"
    _say(f"acqstream {answer.version} at {answer.endpoint}, up {duration_text(answer.uptime_s)}")
    _say(f"data   {answer.data} ({free})")
    _say(
        f"memory {size_text(answer.memory_used_bytes)} of {size_text(answer.memory_budget_bytes)} used, "
        f"at most {size_text(answer.memory_peak_bytes)}"
    )
    _print_load(answer.load)
    if answer.views.kernels:
        _say(f"views  {answer.views.kernels} kernels")
    for mirror in answer.views.mirrors:
        reason = f" ({mirror.reason})" if mirror.reason else ""
        behind = f"{count_text(mirror.behind, 'frame')} behind"
        _say(f"mirror {mirror.mirror} of {mirror.path}: {mirror.state}, {behind}{reason}")
    if any(answer.left_out.values()):
        left_out = ", ".join(count_text(n, what.removesuffix("s")) for what, n in answer.left_out.items() if n)
        _say(f"not shown, to keep this short: {left_out}")
    if not answer.acquisitions:
        _say("no acquisition is running")
    for acquisition in answer.acquisitions:
        print()
        _print_acquisition(acquisition)


def _print_load(load: LoadStatus) -> None:
    if load.processor_percent is None:
        return  # the daemon has just started
    _say(
        f"load   {load.processor_percent:.0f}% of {count_text(load.processors, 'processor')}, "
        f"{size_text(load.available_memory_bytes)} of {size_text(load.total_memory_bytes)} memory available"
    )
    _say(
        f"daemon {load.daemon_processor_percent or 0:.0f}% of one processor, "
        f"{size_text(load.daemon_memory_bytes)} memory, priority {load.priority}"
    )
    if load.disk_write_bytes_per_s is not None:
        busy = "" if load.disk_busy_percent is None else f", {load.disk_busy_percent:.0f}% busy"
        _say(f"disk   {load.disk} writes {rate_text(load.disk_write_bytes_per_s)}{busy}")


def _print_acquisition(run: AcquisitionStatus) -> None:
    from acqstream.model.run_summary import run_summary

    words = run_summary(run)
    sent = f"sent {run.sent:,}, " if run.sent is not None else ""
    _say(f"{run.name}: {run.state}, {words.sentence(datetime.now().astimezone())}")
    if words.alarm.text:
        _say(f"  ALARM  {words.alarm.text}: {words.alarm.action}")
    _say(f"  frames {sent}received {run.received:,}, published {run.published:,}, durable {run.durable:,}")
    _say(f"  queue  {count_text(run.queue_frames, 'frame')}, {size_text(run.queue_bytes)}")
    frame_rate = f", {words.frame_rate_text}" if words.frame_rate_text else ""
    _say(f"  stored {size_text(run.payload_bytes)} at {words.rate_text}{frame_rate}")
    if words.skipped_text:
        _say(f"  gaps   {words.skipped_text}")
    _say(f"  I/O    {run.io or '-'}")
    if run.io_why:
        _say(f"{run.name}: buffered I/O: {run.io_why}")
    if run.transport_why:
        _say(f"{run.name}: no shared memory: {run.transport_why}")
    for code, text, _ in run.warnings:
        _say(f"{run.name}: warning {code}: {text}")


def _say(text: str) -> None:
    """Print a line, folded to COLUMNS: no terminal is narrower, and a path has no end."""
    if text.isascii() and len(text) <= COLUMNS:
        print(text)
        return
    from rich.cells import cell_len
    from rich.console import Console
    from rich.text import Text

    if all(cell_len(line) <= COLUMNS for line in text.splitlines()):
        print(text)
        return
    screen = Console(width=COLUMNS)
    first = Text(text).wrap(screen, COLUMNS, overflow="fold")[0].plain.rstrip()
    more = Text(text[len(first) :].lstrip()).wrap(screen, COLUMNS - len(_INDENT), overflow="fold")
    print("\n".join([first, *(_INDENT + line.plain.rstrip() for line in more)]))
