r"""Paths with and without `\\?\`. Runs everywhere."""

from __future__ import annotations

import ctypes
import ntpath
from types import SimpleNamespace

import pytest

from acqstream.storage.platform import windows_names
from acqstream.storage.platform.windows_names import extended_path, has_long_paths, plain_path, volume_of


@pytest.mark.parametrize(
    ("absolute", "extended"),
    [
        (r"C:\data\run", r"\\?\C:\data\run"),
        (r"\\server\share\run", r"\\?\UNC\server\share\run"),
        (r"\\?\C:\data", r"\\?\C:\data"),
        (r"\\.\NUL", r"\\.\NUL"),
    ],
)
def test_an_absolute_path_is_extended_and_back(absolute: str, extended: str) -> None:
    assert extended_path(absolute, absolute) == extended
    if not absolute.startswith(("\\\\?", "\\\\.")):
        assert plain_path(extended) == absolute


def test_dots_and_slashes_are_resolved_first() -> None:
    """The system takes an extended path as it is."""
    assert extended_path("C:/data/./a/../b") == r"\\?\C:\data\b"
    assert extended_path("name", ntpath.join("C:\\", "name")) == r"\\?\C:\name"


def test_an_extended_path_is_not_extended_again() -> None:
    once = extended_path(r"C:\data\x")
    assert extended_path(once) == once


@pytest.mark.parametrize(
    ("path", "volume"),
    [(r"C:\data\x", "c:"), (r"\\?\C:\data", "c:"), (r"\\Server\Share\x", r"\\server\share"), ("relative", "")],
)
def test_the_volume_of_a_path(path: str, volume: str) -> None:
    assert volume_of(path) == volume


class Ask:
    """A function of a library that returns a register, of which the lowest byte counts."""

    restype: type[ctypes.c_uint8] | None = None

    def __init__(self, register: int) -> None:
        self.register = register

    def __call__(self) -> int:
        return self.register if self.restype is None else self.restype(self.register).value


@pytest.mark.parametrize(("register", "expected"), [(0, False), (1, True), (0x7F00, False), (0x7F01, True)])
def test_ntdll_knows_whether_python_sees_long_paths(
    monkeypatch: pytest.MonkeyPatch, register: int, expected: bool
) -> None:
    library = SimpleNamespace(RtlAreLongPathsEnabled=Ask(register))
    monkeypatch.setattr(windows_names, "WIN_CTYPES", SimpleNamespace(WinDLL=lambda name: library))
    assert has_long_paths.__wrapped__() is expected


def test_wine_has_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_names, "WIN_CTYPES", SimpleNamespace(WinDLL=lambda name: SimpleNamespace()))
    assert has_long_paths.__wrapped__()
