"""`acqstream web`: datasets over HTTP."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from acqstream.cli.endpoint import EndpointOption
from acqstream.cli.output import start_logging
from acqstream.errors import ConfigError
from acqstream.extras import install_command


def web(  # noqa: PLR0913 - one parameter per option
    *,
    data: Annotated[Path, typer.Option(help="Data directory whose datasets are served.")] = Path(),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free one.")] = 5280,
    address: Annotated[str, typer.Option(help="Address; one that other machines reach needs a token.")] = "127.0.0.1",
    socket: Annotated[Path | None, typer.Option(help="Local socket in place of the port.")] = None,
    endpoint: EndpointOption = None,
    host: Annotated[list[str] | None, typer.Option(help="Name by which clients may address it; repeatable.")] = None,
    origin: Annotated[
        list[str] | None, typer.Option(help="Origin of a web page that may read answers, or *; repeatable.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that requests must show; made if it is missing.")
    ] = None,
    neuroglancer: Annotated[Path | None, typer.Option(help="Folder with a built client of Neuroglancer.")] = None,
    read_mb_s: Annotated[
        float | None,
        typer.Option(min=0.1, help="Bound on all answers, in MB per second [default: 50 while the daemon records]."),
    ] = None,
    log: Annotated[Path | None, typer.Option(help="Also log to this file; the last 5 MB are kept.")] = None,
) -> None:
    """Serve every dataset of a data directory over HTTP, for viewers; only reads.

    It runs until SIGTERM or Ctrl-C. On loopback unless told otherwise. Prints its address when it is ready.
    """
    if find_spec("aiohttp") is None:
        raise ConfigError(f"web needs more packages: {install_command('web')}")
    from acqstream.web.web_server import run_server
    from acqstream.web.web_settings import VIEWER_ORIGINS, WebLimits, WebSettings, read_or_make_token

    start_logging(log)
    settings = WebSettings(
        data=data,
        address=address,
        port=port,
        socket=socket,
        endpoint=endpoint,
        hosts=tuple(host or ()),
        origins=(*VIEWER_ORIGINS, *(origin or ())),
        token=read_or_make_token(token_file) if token_file is not None else "",
        neuroglancer=neuroglancer,
        limits=WebLimits(read_bytes_per_s=None if read_mb_s is None else int(read_mb_s * 1e6)),
    )
    run_server(settings, _announce)


def _announce(url: str) -> None:
    print(f"serving at {url}")
    sys.stdout.flush()
