"""Sections of Windows: what one process writes another one reads, and what is refused."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from acqstream.storage.handover import (
    PAGE_BYTES,
    close_handle,
    duplicate_handle,
    make_sealed_memory,
    map_memory,
    map_sealed_memory,
)
from acqstream.storage.page_memory import PageMemory
from acqstream.storage.platform import windows_memory
from acqstream.storage.platform.windows_api import is_windows, kernel32

pytestmark = pytest.mark.skipif(not is_windows(), reason="sections are of Windows")

NO_HANDLE = 0x7770
PAGE_READWRITE, SEC_RESERVE = 0x4, 0x4000000


def n_handles() -> int:
    gc.collect()
    count: int = psutil.Process().num_handles()
    return count


def test_another_mapping_shows_what_is_written_and_is_read_only() -> None:
    pages, handle = make_sealed_memory(3 * PAGE_BYTES)
    view = map_sealed_memory(handle)
    pages[PAGE_BYTES : PAGE_BYTES + 5] = b"hello"
    assert (len(view), bytes(view[PAGE_BYTES : PAGE_BYTES + 6])) == (3 * PAGE_BYTES, b"hello\0")
    assert view.readonly
    close_handle(handle)
    del pages
    assert bytes(view[PAGE_BYTES : PAGE_BYTES + 5]) == b"hello"  # it lives as long as it is mapped


def test_a_mapping_has_whole_pages() -> None:
    memory = PageMemory(PAGE_BYTES + 100, shared=True)
    assert memory.descriptor is not None
    assert len(memory.view) == PAGE_BYTES + 100
    assert len(map_memory(memory.descriptor)) == 2 * PAGE_BYTES


def test_a_handle_for_readers_cannot_be_mapped_writable() -> None:
    _, handle = make_sealed_memory(PAGE_BYTES)
    own = kernel32().GetCurrentProcess()
    read_only = windows_memory.duplicate(own, handle, own, access=windows_memory.FILE_MAP_READ)
    assert len(map_sealed_memory(read_only)) == PAGE_BYTES
    with pytest.raises(PermissionError, match="cannot map"):
        windows_memory.map_own_memory(read_only, PAGE_BYTES)
    close_handle(read_only)
    close_handle(handle)


@pytest.mark.parametrize("size", [0, 1, 2 * PAGE_BYTES])
def test_memory_of_a_file_is_refused(tmp_path: Path, size: int) -> None:
    """Its disk or its network share could fail while the daemon reads."""
    msvcrt = pytest.importorskip("msvcrt")
    with (tmp_path / "file").open("w+b") as file:
        file.write(bytes(2 * PAGE_BYTES))
        file.flush()
        handle = msvcrt.get_osfhandle(file.fileno())
        section = kernel32().CreateFileMappingW(handle, None, PAGE_READWRITE, 0, size, None)
        assert section
        with pytest.raises(ValueError, match="backed by a file"):
            map_sealed_memory(section)
        close_handle(section)
        with pytest.raises(OSError, match="cannot map"):
            map_sealed_memory(handle)  # not a section at all


def test_memory_that_is_only_reserved_is_refused() -> None:
    invalid = 2**64 - 1
    section = kernel32().CreateFileMappingW(invalid, None, PAGE_READWRITE | SEC_RESERVE, 0, 2 * PAGE_BYTES, None)
    assert section
    with pytest.raises(ValueError, match="only reserved"):
        map_sealed_memory(section)
    close_handle(section)


def test_a_number_that_is_no_handle_is_an_error() -> None:
    for call in (map_sealed_memory, duplicate_handle, close_handle):
        with pytest.raises(OSError, match="handle"):
            call(NO_HANDLE)


def test_more_memory_than_there_is_is_an_error() -> None:
    with pytest.raises(OSError, match=f"{2**44} bytes wanted"):
        make_sealed_memory(2**44)


def test_no_handle_stays() -> None:
    before = n_handles()
    for _ in range(20):
        pages, handle = make_sealed_memory(PAGE_BYTES)
        view = map_sealed_memory(handle)
        close_handle(handle)
        with pytest.raises(OSError, match="cannot duplicate"):
            windows_memory.attach_memory([NO_HANDLE], psutil.Process().pid)
        del pages, view
    assert n_handles() - before < 10


def test_handles_for_a_process_that_is_gone_are_an_error() -> None:
    _, handle = make_sealed_memory(PAGE_BYTES)
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    with pytest.raises(OSError, match=r"process|handle"):
        windows_memory.attach_memory([handle], child.pid)
    close_handle(handle)
