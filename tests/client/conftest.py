"""A fake daemon for every test of the producer that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.fake_daemon import FakeDaemon


@pytest.fixture
def daemon() -> Iterator[FakeDaemon]:
    fake = FakeDaemon()
    yield fake
    fake.stop()
