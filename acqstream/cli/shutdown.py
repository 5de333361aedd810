"""`acqstream shutdown`: end the daemon in order."""

from __future__ import annotations

from typing import Annotated

import typer

from acqstream.cli.endpoint import DataOption, EndpointOption, endpoint_for
from acqstream.model.units import count_text


def shutdown(
    *,
    endpoint: EndpointOption = None,
    data: DataOption = None,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait until the daemon has ended.")] = 330.0,
) -> None:
    """End the daemon of this machine.

    Running acquisitions are finished with the frames received so far, and can be resumed.
    """
    from acqstream.client.daemon_requests import shut_down

    n_running = shut_down(endpoint_for(endpoint, data), timeout_s=timeout_s)
    print(f"the daemon has ended; it finished {count_text(n_running, 'acquisition')}")
