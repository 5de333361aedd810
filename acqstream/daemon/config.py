"""Configuration of the daemon: a TOML file, overridden by the command line."""

from __future__ import annotations

import os
import re
import secrets
import tomllib
from pathlib import Path
from typing import Any, Self

import psutil
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from acqstream.errors import AcqStreamError, ConfigError
from acqstream.mirrors.mirror_plan import check_view
from acqstream.model.notice_target import parse_target
from acqstream.protocol.requests import parse_views
from acqstream.storage.files.small_file import read_small_file
from acqstream.storage.local_sockets import private_folder
from acqstream.storage.memory_limit import usable_memory_bytes
from acqstream.storage.platform.capabilities import has_local_sockets

MAX_PORT = 65535
MAX_NOTICE_TARGETS = 10
MAX_NOTICE_CHARACTERS = 16_000  # a pipe takes at once what is given to the notifier
_MAX_FILE_BYTES = 2**20
PROGRAM_MB = 1024  # further memory of daemon and view process: programs, indexes, copies in transit
DEFAULT_ENDPOINT = "tcp://127.0.0.1:5271"
ANY_LOCAL_PORT = "tcp://127.0.0.1:*"
EMBEDDED_IDLE_S = 60.0
_REMOTE = re.compile(r"tcp://(\*|[0-9A-Za-z._-]+|\[[0-9A-Za-z:.%]+\]):(?P<port>[0-9]{1,5}|\*)")
_LOCAL = re.compile(r"tcp://(127(\.[0-9]{1,3}){3}|localhost|\[::1\]):(?P<port>[0-9]{1,5}|\*)|ipc://.+")


def _default_memory_mb(max_mb: int = 1536, share: int = 8) -> int:
    """Return an eighth of the RAM, or a share of a limit that all the defaults together do not fit into."""
    ram_mb, usable_mb = psutil.virtual_memory().total // 2**20, usable_memory_bytes() // 2**20
    views_mb = min(2048, ram_mb // 8)
    fits = usable_mb >= min(1536, ram_mb // 8) + 2 * views_mb + PROGRAM_MB
    return int(max(16, min(max_mb, ram_mb // 8 if fits else usable_mb // share)))


def _default_view_memory_mb() -> int:
    return _default_memory_mb(2048, share=4)


class DaemonConfig(BaseModel):
    """Settings of `acqstream serve`; every field is a key of the TOML file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: Path = Field(default=Path("."), description="Data directory; every dataset is a folder in it.")
    endpoints: list[str] = Field(
        default=[DEFAULT_ENDPOINT], min_length=1, description="Endpoints for producers: tcp on loopback, or ipc."
    )
    ipc: bool = Field(default=True, description="Also bind an ipc endpoint, in the runtime directory.")
    shared_memory: bool = Field(
        default=True,
        description="Accept shared memory of local producers, through a socket in the runtime directory.",
    )
    remote: list[str] = Field(
        default=[], description="Endpoints for producers on other machines: tcp on any address, with keys (CURVE)."
    )
    server_key: Path | None = Field(default=None, description="Secret key file of the daemon, for remote.")
    client_keys: Path | None = Field(
        default=None, description="Folder with the public key files (*.key) of clients that may use remote endpoints."
    )
    runtime: Path = Field(default_factory=private_folder, description="Folder of the local sockets.")
    memory_mb: int = Field(
        default_factory=_default_memory_mb, ge=16, description="Memory for frames that are not written yet, in MiB."
    )
    pyramid_memory_mb: int = Field(
        default_factory=_default_view_memory_mb,
        ge=1,
        description="Memory of one pyramid for incomplete and unwritten tiles, in MiB.",
    )
    mirrors: list[str | dict[str, Any]] = Field(
        default=[],
        description="Mirrors of acquisitions that name none: formats, or tables with format and options.",
    )
    mirror_memory_mb: int = Field(
        default_factory=_default_view_memory_mb, ge=16, description="Max memory of one mirror, in MiB."
    )
    max_payload_mb: int = Field(default=256, ge=1, le=4000, description="Max size of a frame, in MiB.")
    max_acquisitions: int = Field(default=64, ge=1, le=1024, description="Max open acquisitions.")
    max_connections: int = Field(default=256, ge=1, le=10000, description="Max connections of all programs.")
    reserve_mb: int = Field(
        default=512, ge=0, description="Free space, in MiB, below which running acquisitions are paused."
    )
    ballast_mb: int = Field(
        default=64, ge=0, description="Size of a file, in MiB, that is deleted on a full disk to close acquisitions."
    )
    low_space_minutes: float = Field(
        default=10.0, ge=0, description="Warn when the space lasts fewer minutes than this at the present rate."
    )
    stop_timeout_s: float = Field(
        default=300.0, ge=0, description="Max seconds to finish running acquisitions when the daemon is stopped."
    )
    restarts: bool = Field(
        default_factory=lambda: "NOTIFY_SOCKET" in os.environ,
        description="Another daemon follows when this one is stopped: producers wait for it as long as their patience. "
        "Without one they get an error at once. Default: true under systemd.",
    )
    grace_s: float = Field(
        default=60.0, ge=0, le=86400, description="Seconds to wait for a lost producer before its run is finished."
    )

    idle_exit_s: float | None = Field(
        default=None, ge=0, description="Seconds without acquisitions and unfinished views before the daemon ends."
    )
    notify: list[str] = Field(
        default=[],
        max_length=MAX_NOTICE_TARGETS,
        description='Where notices go: "command PROGRAM ARGUMENT ...", https://..., or http://127.0.0.1:PORT/...',
    )
    notify_no_frames_s: float = Field(
        default=60.0, ge=0, description="Seconds without a frame of a running acquisition before a notice; 0: never."
    )
    web: bool = Field(default=False, description="Run the web face beside the daemon (needs the extra `web`).")
    web_address: str = Field(default="127.0.0.1", description="Address of the web face; others than loopback: token.")
    web_port: int = Field(default=5280, ge=0, le=MAX_PORT, description="Port of the web face.")
    web_token: bool | None = Field(
        default=None,
        description="The web face asks for the token in the file web-token of the runtime directory. Default: if the "
        "daemon has no open tcp endpoint, so that not all users can use it.",
    )
    web_hosts: list[str] = Field(default=[], description="Further names by which clients address the web face.")
    web_origins: list[str] = Field(default=[], description="Further origins of web pages that may read answers, or *.")
    web_read_mb_s: float | None = Field(
        default=None, gt=0, description="Bound on answers of the web face, in MB/s; unset: 50 while the daemon records."
    )
    web_neuroglancer: Path | None = Field(default=None, description="Folder with a built client of Neuroglancer.")

    @property
    def max_memory_mb(self) -> int:
        """Memory limit for a service manager, in MiB: frames, one pyramid, one mirror and the programs."""
        return self.memory_mb + self.pyramid_memory_mb + self.mirror_memory_mb + PROGRAM_MB

    @field_validator("endpoints")
    @classmethod
    def _local_only(cls, endpoints: list[str]) -> list[str]:
        for endpoint in endpoints:
            match = _LOCAL.fullmatch(endpoint)
            if match is None:
                raise ValueError(
                    f"{endpoint} is not local; expected ipc, or tcp on 127.0.0.1, localhost or [::1]; "
                    "for other machines use `remote`, with keys"
                )
            if match["port"] not in (None, "*") and int(match["port"]) > MAX_PORT:
                raise ValueError(f"{endpoint}: port {match['port']}; expected a number up to {MAX_PORT}, or * for any")
        return endpoints

    @field_validator("remote")
    @classmethod
    def _with_port(cls, remote: list[str]) -> list[str]:
        for endpoint in remote:
            match = _REMOTE.fullmatch(endpoint)
            if match is None or (match["port"] != "*" and int(match["port"]) > MAX_PORT):
                raise ValueError(f"{endpoint} is not a TCP endpoint (example: tcp://0.0.0.0:5272)")
        return remote

    @field_validator("mirrors")
    @classmethod
    def _known_mirrors(cls, mirrors: list[str | dict[str, Any]]) -> list[str | dict[str, Any]]:
        try:
            for spec in parse_views(mirrors):
                check_view(spec)
        except AcqStreamError as error:
            raise ValueError(str(error)) from error
        return mirrors

    @field_validator("notify")
    @classmethod
    def _known_targets(cls, notify: list[str]) -> list[str]:
        try:
            for text in notify:
                parse_target(text)
            if sum(map(len, notify)) > MAX_NOTICE_CHARACTERS:
                raise ConfigError(f"notify: more than {MAX_NOTICE_CHARACTERS} characters in all")
        except ConfigError as error:
            raise ValueError(str(error).removeprefix("notify: ")) from error
        return notify

    @model_validator(mode="after")
    def _remote_needs_keys(self) -> Self:
        if self.remote and (self.server_key is None or self.client_keys is None):
            raise ValueError("remote needs server_key and client_keys; make them with: acqstream keys")
        return self

    @property
    def has_key(self) -> bool:
        """Whether clients have to show the key of the port: where a program's own daemon has no local sockets."""
        return self.endpoints == [ANY_LOCAL_PORT] and self.restarts and not has_local_sockets()


def embedded_config(config: DaemonConfig) -> DaemonConfig:
    """The same for a daemon that a program has started for itself: a way in for this user only, and an end when idle.

    All users of the PC reach ports of loopback, so it has one only where the system has no local sockets, and that one
    needs a key.
    """
    endpoint = ANY_LOCAL_PORT
    if has_local_sockets():
        endpoint = f"ipc://{config.runtime.absolute()}/data-{secrets.token_hex(4)}.sock"
    idle_s = EMBEDDED_IDLE_S if config.idle_exit_s is None else config.idle_exit_s
    # restarts: the program starts the next one
    own = {"endpoints": [endpoint], "remote": [], "idle_exit_s": idle_s, "restarts": True}
    return config.model_copy(update=own)


def load_config(path: Path | None = None, **overrides: Any) -> DaemonConfig:
    """Return the configuration in a TOML file (None: the defaults), replaced by overrides that are not None.

    Raises ConfigError naming the file and the field.
    """
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(read_small_file(path, _MAX_FILE_BYTES).decode("utf-8"))
        except (AcqStreamError, ValueError, RecursionError) as error:
            raise ConfigError(f"cannot read configuration {path}: {error}") from error
    values.update({name: value for name, value in overrides.items() if value is not None})
    try:
        return DaemonConfig(**values)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "configuration"
        where = f"{path}: " if path is not None else ""
        raise ConfigError(f"{where}{field}: {first['msg']}") from error
