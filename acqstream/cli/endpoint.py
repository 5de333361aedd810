"""The option that names the daemon."""

from __future__ import annotations

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
