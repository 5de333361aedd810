"""How functions of the Windows API are declared; a stand-in for the libraries runs everywhere."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from ctypes import c_int, c_uint32, c_void_p
from types import SimpleNamespace
from typing import Any

import pytest

from acqstream.storage.platform import windows_api
from acqstream.storage.platform.windows_api import Signatures

ALL: Signatures = (
    windows_api._FILES
    | windows_api._PROCESSES_AND_MEMORY
    | windows_api._SECURITY
    | windows_api._WINDOWS
    | windows_api._PROGRAMS
)
HANDLES = {
    "CreateFileW",
    "CreateFileMappingW",
    "CreateJobObjectW",
    "CreateWindowExW",
    "GetCurrentProcess",
    "MapViewOfFile",
    "OpenProcess",
    "ReOpenFile",
}
UNSIGNED = {"GetFileAttributesW", "GetFileType", "SetThreadExecutionState", "RmGetList"}


class Library:
    """A library that has every function, and the arguments it was loaded with."""

    def __init__(self, name: str, **how: Any) -> None:
        self.name, self.how = name, how
        self.functions: dict[str, SimpleNamespace] = defaultdict(SimpleNamespace)

    def __getattr__(self, name: str) -> SimpleNamespace:
        return self.functions[name]


def test_a_function_is_declared_completely_and_its_error_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `use_last_error` ctypes or Python may change the code before it is read."""
    monkeypatch.setattr(windows_api, "is_windows", lambda: True)
    monkeypatch.setattr(windows_api, "WIN_CTYPES", SimpleNamespace(WinDLL=Library))
    library = windows_api._load("kernel32", windows_api._FILES)
    assert (library.name, library.how) == ("kernel32", {"use_last_error": True})
    assert library.functions.keys() == windows_api._FILES.keys()
    for name, (result, arguments) in windows_api._FILES.items():
        assert vars(library.functions[name]) == {"restype": result, "argtypes": arguments}


@pytest.mark.parametrize("name", sorted(HANDLES))
def test_handles_and_addresses_are_returned_with_all_their_bits(name: str) -> None:
    assert ALL[name][0] is c_void_p


@pytest.mark.parametrize("name", sorted(UNSIGNED))
def test_numbers_with_a_highest_bit_are_not_negative(name: str) -> None:
    """0xFFFFFFFF means that a file is missing, 0x80000000 is a state."""
    assert ALL[name][0] is c_uint32


def test_an_invalid_handle_is_what_a_function_returns_as_one() -> None:
    assert 2 ** (8 * ctypes.sizeof(c_void_p)) - 1 == windows_api.INVALID_HANDLE


def test_each_function_takes_its_handle_as_a_pointer() -> None:
    """As an int, ctypes would cut it to 32 bits."""
    for name in ("CloseHandle", "ReadFile", "WriteFile", "LockFileEx", "FlushFileBuffers", "DuplicateHandle"):
        assert ALL[name][1][0] is c_void_p
        assert ALL[name][0] is c_int


def test_no_library_is_loaded_elsewhere() -> None:
    if windows_api.is_windows():
        pytest.skip("the libraries exist here")
    with pytest.raises(OSError, match="exists on Windows only"):
        windows_api._load("kernel32", {})
