"""`acqstream stop` and `shutdown`: end an acquisition, or the daemon in order, from outside."""

from __future__ import annotations

from typing import Annotated

import typer

from acqstream.cli.endpoint import DataOption, EndpointOption, endpoint_for
from acqstream.cli.output import print_json, typed_text
from acqstream.model.units import count_text


def stop(
    name: Annotated[str, typer.Argument(help="Name of the running acquisition, see acqstream status.")],
    *,
    endpoint: EndpointOption = None,
    data: DataOption = None,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait until it is finished.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="The receipt as one JSON document on stdout.")] = False,
) -> None:
    """End a running acquisition.

    Received frames are stored, and the producer gets an error that names the operator. The dataset ends as canceled.
    """
    from acqstream.client.daemon_requests import stop_acquisition

    receipt = stop_acquisition(typed_text(name), endpoint_for(endpoint, data), timeout_s=timeout_s)
    if as_json:
        print_json(receipt.as_dict())
    else:
        print(f"stopped {receipt.path}: {receipt.status}, {count_text(receipt.stored, 'frame')} stored")


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
