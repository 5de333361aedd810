r"""Paths with and without `\\?\`. Runs everywhere."""

from __future__ import annotations

import ntpath

import pytest

from acqstream.storage.platform.windows_paths import extended_path, plain_path, volume_of


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
