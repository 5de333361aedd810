"""The key of a `shutdown` request, and the file that holds it. docs/protocol.md, "shutdown"."""

from __future__ import annotations

import re
import secrets

PREFIX = "acqstream-shutdown-"
_KEY = re.compile(re.escape(PREFIX) + r"[0-9a-f]{64}")
MAX_FILE_BYTES = 200


def new_key() -> str:
    """A key of 256 random bits."""
    return PREFIX + secrets.token_hex(32)


def key_in(content: bytes) -> str | None:
    """The key in the content of a file; None if the file is not one of ours.

    A client sends no other content: a program that only pretends to be a daemon could name any file of the user.
    """
    text = content.decode("ascii", "replace").strip()
    return text if _KEY.fullmatch(text) else None
