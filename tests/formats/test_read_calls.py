"""Reading a chunk opens its file once and asks the file system nothing besides."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from acqstream.formats.registry import chunk_format
from acqstream.storage.stores.data_path import data_path_of

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.skipif(sys.platform == "win32", reason="files are opened by calls of Windows, not of os")
@pytest.mark.parametrize(
    "name", ["n5/multiscale_bdv.n5", "n5/java.n5/u16_lz4", "wkw/lz4_u16_b8_f4", "wkw/raw_u8_b8_f4"]
)
def test_a_chunk_is_read_with_one_open(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = chunk_format(name.partition("/")[0]).open(data_path_of(GOLDEN / name))[0]
    position = next(iter(reader.stored()))
    first = reader.read_chunk(position)  # the header of a folder is read once
    calls: Counter[str] = Counter()

    def counted(call: str) -> Any:
        real = getattr(os, call)

        def count(*arguments: Any, **keywords: Any) -> Any:
            calls[call] += 1
            return real(*arguments, **keywords)

        return count

    for call in ("open", "stat", "lstat", "scandir", "listdir"):
        monkeypatch.setattr(os, call, counted(call))
    second = reader.read_chunk(position)
    monkeypatch.undo()
    assert first is not None
    assert second is not None
    assert (first == second).all()
    assert calls == {"open": 1}
