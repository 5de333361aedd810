"""Configuration of the daemon: a TOML file, overridden by the command line."""

from __future__ import annotations

import os
import re
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Self

import psutil
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from acqstream.errors import AcqStreamError, ConfigError
from acqstream.mirrors.view_kinds import check_view
from acqstream.protocol.mirrors import parse_views
from acqstream.storage.json_file import read_small_file

MAX_PORT = 65535
_MAX_FILE_BYTES = 2**20
PROGRAM_MB = 1024  # what daemon and views' process take besides: the programs, indexes, copies on their way
DEFAULT_ENDPOINT = "tcp://127.0.0.1:5271"
_REMOTE = re.compile(r"tcp://(\*|[0-9A-Za-z._-]+|\[[0-9A-Za-z:.%]+\]):(?P<port>[0-9]{1,5}|\*)")
_LOCAL = re.compile(r"tcp://(127(\.[0-9]{1,3}){3}|localhost|\[::1\]):(?P<port>[0-9]{1,5}|\*)|ipc://.+")


def _default_memory_mb() -> int:
    return int(min(1536, psutil.virtual_memory().total // 8 // 2**20))


def _default_view_memory_mb() -> int:
    return int(max(16, min(2048, psutil.virtual_memory().total // 8 // 2**20)))


def _default_runtime() -> Path:
    for name in ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"):
        value = os.environ.get(name)
        if value:
            return Path(value.split(":")[0]) / ("" if name == "RUNTIME_DIRECTORY" else "acqstream")
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"acqstream-{user}"


class DaemonConfig(BaseModel):
    """What `acqstream serve` can be told; every field is a key of the TOML file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: Path = Field(default=Path("."), description="Data directory; every dataset is a folder in it.")
    endpoints: list[str] = Field(
        default=[DEFAULT_ENDPOINT], min_length=1, description="Where producers connect: tcp on loopback, or ipc."
    )
    ipc: bool = Field(default=True, description="Offer an ipc endpoint beside tcp, in the runtime directory.")
    shared_memory: bool = Field(
        default=True, description="Take frames from memory of producers on this machine, by a socket in the same place."
    )
    remote: list[str] = Field(
        default=[], description="Where producers of other machines connect: tcp on any address, with keys (CURVE)."
    )
    server_key: Path | None = Field(default=None, description="Secret key file of the daemon, for remote.")
    client_keys: Path | None = Field(
        default=None, description="Folder with the public key files (*.key) of the clients that may use remote."
    )
    runtime: Path = Field(default_factory=_default_runtime, description="Folder of the local sockets.")
    memory_mb: int = Field(
        default_factory=_default_memory_mb, ge=16, description="Memory for frames on their way, in MiB."
    )
    pyramid_memory_mb: int = Field(
        default_factory=_default_view_memory_mb,
        ge=1,
        description="Memory that one pyramid may take, in MiB, for tiles that are not complete or not written yet.",
    )
    mirrors: list[str | dict[str, Any]] = Field(
        default=[],
        description="Mirrors of acquisitions that do not say which: formats, or tables with format and options.",
    )
    mirror_memory_mb: int = Field(
        default_factory=_default_view_memory_mb, ge=16, description="Memory that one mirror may take, in MiB."
    )
    max_payload_mb: int = Field(default=256, ge=1, le=4000, description="Largest frame, in MiB.")
    max_acquisitions: int = Field(default=64, ge=1, le=1024, description="Acquisitions open at once.")
    max_connections: int = Field(default=256, ge=1, le=10000, description="Connections at once, of all programs.")
    reserve_mb: int = Field(
        default=512, ge=0, description="Free space, in MiB, below which no more frames are asked for: runs are paused."
    )
    ballast_mb: int = Field(
        default=64, ge=0, description="Space, in MiB, kept by a file and given up last, for closing what runs."
    )
    low_space_minutes: float = Field(
        default=10.0, ge=0, description="Warn when the space lasts for less than so many minutes at the present rate."
    )
    stop_timeout_s: float = Field(
        default=300.0, ge=0, description="How long the daemon takes at most to finish what runs when it is stopped."
    )
    grace_s: float = Field(
        default=60.0, ge=0, le=86400, description="How long a lost producer may stay away before its run is finished."
    )

    @property
    def most_memory_mb(self) -> int:
        """What a service manager should allow, in MiB: frames, one pyramid and one mirror at a time, the program."""
        return self.memory_mb + self.pyramid_memory_mb + self.mirror_memory_mb + PROGRAM_MB

    @field_validator("endpoints")
    @classmethod
    def _local_only(cls, endpoints: list[str]) -> list[str]:
        for endpoint in endpoints:
            found = _LOCAL.fullmatch(endpoint)
            if found is None:
                raise ValueError(
                    f"{endpoint} is not local: only tcp on 127.0.0.1, localhost or [::1], and ipc, are safe; "
                    "for other machines see remote, with keys"
                )
            if found["port"] not in (None, "*") and int(found["port"]) > MAX_PORT:
                raise ValueError(f"{endpoint}: a port is a number up to {MAX_PORT}, or * for any free one")
        return endpoints

    @field_validator("remote")
    @classmethod
    def _with_port(cls, remote: list[str]) -> list[str]:
        for endpoint in remote:
            found = _REMOTE.fullmatch(endpoint)
            if found is None or (found["port"] != "*" and int(found["port"]) > MAX_PORT):
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

    @model_validator(mode="after")
    def _remote_needs_keys(self) -> Self:
        if self.remote and (self.server_key is None or self.client_keys is None):
            raise ValueError("remote needs server_key and client_keys: nobody connects from elsewhere without keys")
        return self


def load_config(path: Path | None = None, **overrides: Any) -> DaemonConfig:
    """The configuration in a TOML file (None: the defaults), with overrides that are not None put on top.

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
