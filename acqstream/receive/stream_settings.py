"""Settings of `acqstream receive`: the stream, the daemon, and when a dataset ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from acqstream.errors import ConfigError

MAX_REORDER = 1024
Pattern = Literal["pull", "sub"]
StreamFormat = Literal["array", "dectris"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """stream is the endpoint of the stream, daemon that of the writer. bind: we bind it and the sender connects.

    idle_s without a message end a dataset. queue bounds the messages that wait in the socket. frames is how many to
    record before ending, None for no end. reorder is how many messages wait for one whose turn it is.
    """

    stream: str
    name: str
    daemon: str | None
    pattern: Pattern = "pull"
    format: StreamFormat = "array"
    bind: bool = False
    idle_s: float = 10.0
    queue: int = 64
    frames: int | None = None
    reorder: int = 16
    patience_s: float = 30.0
    buffer_mb: float = 256

    def __post_init__(self) -> None:
        if self.pattern not in ("pull", "sub"):
            raise ConfigError(f"pattern {self.pattern!r} must be 'pull' or 'sub'")
        if self.format not in ("array", "dectris"):
            raise ConfigError(f"format {self.format!r} must be 'array' or 'dectris'")
        if not self.idle_s > 0:
            raise ConfigError(f"idle_s={self.idle_s!r} must be a positive number of seconds")
        if not 0 <= self.reorder <= MAX_REORDER:
            raise ConfigError(f"reorder={self.reorder!r} must be a number of messages from 0 to {MAX_REORDER}")
        if self.queue < 1:
            raise ConfigError(f"queue={self.queue!r} must be at least one message")
