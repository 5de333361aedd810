"""`acqstream serve`: the daemon."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from acqstream.cli.output import ExitCode, start_logging
from acqstream.errors import AcqStreamError, DatasetLocked


def serve(
    *,
    config: Annotated[Path | None, typer.Option(help="Configuration (TOML); what stands below overrides it.")] = None,
    data: Annotated[Path | None, typer.Option(help="Directory that acquisitions are written to.")] = None,
    endpoint: Annotated[
        list[str] | None, typer.Option(help="Address for producers, e.g. tcp://127.0.0.1:5271; may be repeated.")
    ] = None,
    log: Annotated[Path | None, typer.Option(help="Also log to this file; the last 5 MB are kept.")] = None,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="As `create(data=DIR)` starts it: any free port, an end when idle.")
    ] = False,
) -> None:
    """Run the daemon.

    It runs until SIGTERM, Ctrl-C or `acqstream shutdown`; running acquisitions are finished first.
    """
    from acqstream.daemon.config import embedded_config, load_config
    from acqstream.daemon.server import serve as run_daemon
    from acqstream.daemon.supervisor import ExitStatus

    start_logging(log, has_console=not embedded or log is None)
    codes = {
        ExitStatus.SUCCESS: ExitCode.OK,
        ExitStatus.STORAGE: ExitCode.STORAGE,
        ExitStatus.FAULT: ExitCode.ERROR,
    }
    try:
        settings = load_config(config, data=data, endpoints=endpoint or None)
        status = run_daemon(embedded_config(settings) if embedded else settings, log=log)
    except AcqStreamError as error:
        # stderr may be closed. But a second embedded daemon must not write into the log of the first.
        if log is not None and not (embedded and isinstance(error, DatasetLocked)):
            logging.getLogger("acqstream.daemon").error("cannot start: %s", error)  # noqa: TRY400 - no traceback
        raise
    raise typer.Exit(codes[status])
