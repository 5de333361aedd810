"""The options that name the daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EndpointOption = Annotated[
    str | None,
    typer.Option(
        help="Address of the daemon [default: $ACQSTREAM_ENDPOINT, your own daemon, the system service, "
        "tcp://127.0.0.1:5271].",
        show_default=False,
    ),
]

DataOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The daemon of this data directory, in place of --endpoint.", show_default=False),
]
StartingDataOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="The daemon of this data directory, started if none runs, in place of --endpoint.",
        show_default=False,
    ),
]


def endpoint_for(endpoint: str | None, data: Path | None) -> str | None:
    """The endpoint that the two options name; None: the default one. Raises DaemonUnavailable."""
    check_one(endpoint, data)
    if data is None:
        return endpoint
    from acqstream.client.directory_daemon import endpoint_of

    return endpoint_of(data)


def check_one(endpoint: str | None, data: Path | None) -> None:
    """Raise BadParameter if both options are given."""
    if endpoint is not None and data is not None:
        raise typer.BadParameter("give --data or --endpoint, not both", param_hint="--data")
