"""What handlers of all routes use: paths as they came, and calls in threads."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from acqstream.web.web_context import WebContext, plain_path

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
