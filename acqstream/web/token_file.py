"""The file with the token of the web face."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from acqstream.errors import ConfigError, FileMissing, StorageError
from acqstream.storage.files.atomic_file import write_private
from acqstream.storage.files.boundary import distrust
from acqstream.storage.files.small_file import read_small_file
from acqstream.storage.platform import exposure

_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,200}")
_MAX_BYTES = 1024
_GROUP_MODE = 0o640


def read_or_make_token(path: Path, *, for_group: bool = False) -> str:
    """The token in a file, which is made if it is missing: for its owner, or for its owner and group.

    Raises ConfigError for a file that every user of the PC can read or replace, or that holds no token; StorageError.
    """
    if stranger := distrust(path):
        raise ConfigError(f"token file {path}: {stranger}; name one in a folder of your own")
    try:
        content = read_small_file(path, _MAX_BYTES)
    except FileMissing:
        return _make(path, for_group=for_group)
    problem = exposure(path)
    if problem:
        raise ConfigError(f"token file: {problem}")
    token = content.decode("ascii", "replace").strip()
    if not _TOKEN.fullmatch(token):
        raise ConfigError(f"token file {path}: expected 16 to 200 letters, digits, _ and -; delete it to get a new one")
    return token


def _make(path: Path, *, for_group: bool) -> str:
    token = secrets.token_urlsafe(24)
    try:
        write_private(path, token.encode() + b"\n")
        if for_group:
            os.chmod(path, _GROUP_MODE)
    except OSError as error:
        raise StorageError.wrap(error, str(path), "write the token file") from error
    return token
