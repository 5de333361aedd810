"""What handlers of all routes use: paths as they came, calls in threads, and what viewers have loaded."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from acqstream.web.web_context import MAX_SOURCES, QUIET_S, SourceLoads, WebContext, plain_path

_ASKED: ContextVar[str] = ContextVar("_ASKED", default="")


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("/data/cells/0?token=x", "/data/cells/0"),
        ("/data/a%2Fb%20c", "/data/a%2Fb%20c"),  # decoded, the name of one folder would be two
        ("/", "/"),
    ],
)
def test_a_path_is_not_decoded(path: str, plain: str) -> None:
    assert plain_path(make_mocked_request("GET", path)) == plain


def test_files_are_read_by_another_thread_for_the_same_request() -> None:
    fields: dict[str, Any] = dict.fromkeys(field.name for field in dataclasses.fields(WebContext))

    def read(value: int, *, more: int) -> tuple[str, int, str]:
        return threading.current_thread().name, value + more, _ASKED.get()

    async def ask() -> tuple[str, int, str]:
        _ASKED.set("cells")
        return await WebContext(**{**fields, "threads": threads}).run(read, 1, more=2)

    with ThreadPoolExecutor(1, "reading") as threads:
        name, total, asked = asyncio.run(ask())
    assert name.startswith("reading")
    assert (total, asked) == (3, "cells")


def test_a_source_is_loaded_when_a_chunk_was_sent_and_nothing_more_is_asked_for() -> None:
    now_s = 100.0
    loads = SourceLoads(lambda: now_s)
    with loads.answering("cells@g=1", is_chunk=False):
        assert loads.is_loaded("cells@g=1") is False
    now_s += QUIET_S
    assert loads.is_loaded("cells@g=1") is None  # the page has read documents alone
    with loads.answering("cells@g=1", is_chunk=True):
        now_s += QUIET_S
        assert loads.is_loaded("cells@g=1") is False
        with pytest.raises(ConnectionError), loads.answering("cells@g=1", is_chunk=True):
            raise ConnectionError
        now_s += QUIET_S
        assert loads.is_loaded("cells@g=1") is False  # of two requests, one has failed
    assert loads.is_loaded("cells@g=1") is False
    now_s += QUIET_S
    assert loads.is_loaded("cells@g=1") is True
    assert loads.is_loaded("cells@g=2") is None


def test_no_number_of_addresses_takes_memory_without_end() -> None:
    loads = SourceLoads()
    with loads.answering("first", is_chunk=True):  # it is forgotten while it is answered
        for number in range(3 * MAX_SOURCES):
            with loads.answering(f"cells@g={number}", is_chunk=True):
                pass
    assert loads.is_loaded("first") is None
    assert len(loads._loads) == MAX_SOURCES
