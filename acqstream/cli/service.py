"""`acqstream service`: start the daemon when this user logs in."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from acqstream.cli.output import ExitCode


class ServiceAction(StrEnum):
    install = "install"
    remove = "remove"
    status = "status"


def service(
    action: Annotated[ServiceAction, typer.Argument(help="What to do.")],
    *,
    data: Annotated[Path | None, typer.Option(help="Data directory of the daemon, for install.")] = None,
    config: Annotated[Path | None, typer.Option(help="Configuration of the daemon (TOML), for install.")] = None,
) -> None:
    """Start the daemon when you log in.

    Windows: a task of the Task Scheduler. Linux: a user unit of systemd. Needs no administrator.
    Exit code 1 of status: it is not installed.
    """
    from acqstream.storage.platform import pc

    if action is ServiceAction.install:
        from acqstream.daemon.config import load_config

        if data is None and config is None:
            raise typer.BadParameter("give --data DIR or --config FILE")
        settings = load_config(config, data=data)
        settings.data.mkdir(parents=True, exist_ok=True)
        print(pc.install(_command(data, config), settings.runtime / "acqstream.log"))
    elif action is ServiceAction.remove:
        print(pc.remove())
    elif pc.is_installed():
        print("installed; `acqstream status` shows whether the daemon runs")
    else:
        print("not installed; `acqstream service install --data DIR` installs it")
        raise typer.Exit(ExitCode.ERROR)


def _command(data: Path | None, config: Path | None) -> list[str]:
    """The command of the daemon. Paths are absolute: a service starts in a folder of the system."""
    command = [sys.executable, "-m", "acqstream", "serve"]
    for option, path in (("--config", config), ("--data", data)):
        command += [option, str(path.absolute())] if path is not None else []
    return command
