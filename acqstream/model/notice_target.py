"""Where notices about acquisitions go: a command, or an address. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from urllib.parse import urlsplit

from acqstream.errors import ConfigError

_COMMAND = "command "
_SECRETS = re.compile(r"([a-z]+://)(?:[^\s/?#'\"]*@)?([^\s/?#'\"]*)[/?#][^\s'\"]*", re.IGNORECASE)
_LOOPBACK = re.compile(r"localhost|127(\.[0-9]{1,3}){3}|::1")


@dataclass(frozen=True, slots=True)
class CommandTarget:
    """A program and its arguments. It is started without a shell."""

    arguments: tuple[str, ...]

    @property
    def label(self) -> str:
        """The name for logs; arguments may have secrets."""
        return f"command {self.arguments[0]}"


@dataclass(frozen=True, slots=True)
class AddressTarget:
    """An address that takes JSON by POST: https, or http on this machine."""

    url: str

    @property
    def label(self) -> str:
        """The name for logs; the path may have secrets, as those of many chat services do."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}"


NoticeTarget = CommandTarget | AddressTarget


def masked(text: str) -> str:
    """Return a text for logs and errors: of its addresses, only the scheme and the machine are no secret."""
    return _SECRETS.sub(r"\1\2/...", text)


def parse_target(text: str) -> NoticeTarget:
    """Parse "command PROGRAM ARGUMENT ..." (quoted as in a POSIX shell) or an address. Raises ConfigError."""
    if text.startswith(_COMMAND):
        try:
            arguments = tuple(shlex.split(text[len(_COMMAND) :]))
        except ValueError as error:
            raise ConfigError(f"notify: {masked(text)!r:.80}: {error}") from error
        if not arguments or not arguments[0] or "\0" in text:
            raise ConfigError(f"notify: {masked(text)!r:.80} names no program")
        return CommandTarget(arguments)
    return AddressTarget(_checked_url(text))


def _checked_url(text: str) -> str:
    expected = 'expected "command PROGRAM ARGUMENT ...", https://..., or http://127.0.0.1:PORT/...'
    try:
        parts = urlsplit(text)
        name, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise ConfigError(f"notify: {masked(text)!r:.80}: {error}; {expected}") from error
    if any(not "!" <= letter <= "~" for letter in text):
        raise ConfigError(
            f"notify: {masked(text)!r:.80}: an address has no spaces, and other letters are percent-encoded"
        )
    is_local = _LOOPBACK.fullmatch(name) is not None
    if not name or not (parts.scheme == "https" or (parts.scheme == "http" and is_local)):
        raise ConfigError(f"notify: {masked(text)!r:.80} is not a target; {expected}")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"notify: {parts.scheme}://{name}: an address has no user name and password here")
    return text
