"""`acqstream serve`: the daemon."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from acqstream.cli.exit_code import ExitCode


def serve(
    *,
    config: Annotated[Path | None, typer.Option(help="Configuration (TOML); what stands below overrides it.")] = None,
    data: Annotated[Path | None, typer.Option(help="Directory that acquisitions are written to.")] = None,
    endpoint: Annotated[
        list[str] | None, typer.Option(help="Address for producers, e.g. tcp://127.0.0.1:5271; may be repeated.")
    ] = None,
) -> None:
    """Run the daemon.

    It runs until SIGTERM or Ctrl-C; running acquisitions are finished first.
    """
    from acqstream.daemon.config import load_config
    from acqstream.daemon.exit_status import ExitStatus
    from acqstream.daemon.serve import serve as run_daemon

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    codes = {
        ExitStatus.SUCCESS: ExitCode.OK,
        ExitStatus.STORAGE: ExitCode.STORAGE,
        ExitStatus.FAULT: ExitCode.ERROR,
    }
    raise typer.Exit(codes[run_daemon(load_config(config, data=data, endpoints=endpoint or None))])
