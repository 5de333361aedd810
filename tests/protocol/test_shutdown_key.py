"""Keys of shutdown requests."""

from __future__ import annotations

import pytest

from acqstream.protocol.requests import (
    MAX_KEY_FILE_BYTES,
    MAX_SHUTDOWN_KEY,
    SHUTDOWN_PREFIX,
    new_shutdown_key,
    shutdown_key_in,
)


def test_keys_differ_and_are_found_in_their_file():
    keys = {new_shutdown_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(shutdown_key_in(key.encode() + b"\n") == key for key in keys)
    assert max(map(len, keys)) < min(MAX_SHUTDOWN_KEY, MAX_KEY_FILE_BYTES)


LONG = SHUTDOWN_PREFIX.encode() + b"0" * 65


@pytest.mark.parametrize("content", [b"", b"secret", LONG, LONG[:-2], b"x" + LONG[:-1], LONG[:-1] + b"\nmore"])
def test_other_content_is_no_key(content):
    assert shutdown_key_in(LONG[:-1]) is not None
    assert shutdown_key_in(content) is None
