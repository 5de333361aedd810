"""The answer to `hello`: what this daemon is, what it takes, and where its sockets are."""

from __future__ import annotations

from acqstream import __version__
from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.endpoints import Endpoints
from acqstream.daemon.machine import boot_id
from acqstream.daemon.shutdown_file import ShutdownFile
from acqstream.model.frame_header import MAX_NUMBER
from acqstream.protocol.encoding import MAX_HEADER_BYTES, MAX_PART_BYTES
from acqstream.protocol.replies import Welcome
from acqstream.protocol.requests import PROTOCOL_VERSION


def welcome(config: DaemonConfig, endpoints: Endpoints, shutdown_file: ShutdownFile) -> Welcome:
    return Welcome(
        version=PROTOCOL_VERSION,
        server=f"acqstream {__version__}",
        formats=("ndtiff",),
        dtypes=("|u1", "<u2"),
        max_header=MAX_HEADER_BYTES,
        max_payload=config.max_payload_mb * 2**20,
        boot=boot_id(),
        ipc=endpoints.ipc,
        events=endpoints.events_endpoint,
        memory=endpoints.memory_server.address if endpoints.memory_server is not None else "",
        sockets=endpoints.identities(),
        max_skip=MAX_NUMBER,
        max_patch=MAX_PART_BYTES,
        shutdown=str(shutdown_file.path),
    )
