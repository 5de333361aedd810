"""Files written whole: past the page cache or through it, they hold the same."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from acqstream.storage.files import direct_file
from acqstream.storage.files.direct_file import WholeFiles
from tests.host_system import needs_a_real_disk
from tests.storage.scripted_disk import ScriptedDisk

STEP = 4096


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_file, "PIECE_BYTES", 2 * STEP)
    monkeypatch.setattr(direct_file, "MIN_DIRECT_BYTES", STEP)


def content_of(*lengths: int) -> list[bytes | memoryview]:
    parts = [bytes((n * 31 + at) % 251 for at in range(length)) for n, length in enumerate(lengths)]
    return [parts[0], *(memoryview(part) for part in parts[1:])]


@pytest.mark.parametrize("can_direct", [pytest.param(True, marks=needs_a_real_disk), False])
@pytest.mark.parametrize(
    "lengths", [(16, 8 * STEP), (16, 8 * STEP - 16), (5, 0, 3 * STEP, 7), (STEP - 1,), (2 * STEP,)]
)
def test_what_is_written_is_there(tmp_path: Path, lengths: tuple[int, ...], can_direct: bool) -> None:
    disk = ScriptedDisk()
    disk.can_direct = can_direct
    content = content_of(*lengths)
    files = WholeFiles(disk)
    for name in "ab":
        files.make(str(tmp_path / name), content)
        assert (tmp_path / name).read_bytes() == b"".join(content)
        kinds = [call.kind for call in disk.of("pwritev", "truncate", "fdatasync", "close", part=name)]
        assert kinds[-2:] == ["fdatasync", "close"]
    is_direct = can_direct and sum(lengths) >= STEP
    assert all((call.offset % STEP, call.length % STEP) == (0, 0) for call in disk.of("pwritev") if is_direct)
    assert len(disk.of("create")) == 2 + (not can_direct and sum(lengths) >= STEP)  # it is tried once


def test_short_writes_are_gone_on_with(tmp_path: Path) -> None:
    disk = ScriptedDisk()
    disk.shorten(STEP + 100, 50)
    content = content_of(5 * STEP)
    WholeFiles(disk).make(str(tmp_path / "a"), content)
    assert (tmp_path / "a").read_bytes() == content[0]


@needs_a_real_disk
def test_a_disk_that_refuses_only_the_write_gets_it_buffered(tmp_path: Path) -> None:
    disk = ScriptedDisk()
    disk.fail("pwritev", code=errno.EINVAL)
    content = content_of(5 * STEP + 1)
    WholeFiles(disk).make(str(tmp_path / "a"), content)
    assert (tmp_path / "a").read_bytes() == content[0]


def test_a_hole_behind_the_content(tmp_path: Path) -> None:
    WholeFiles(ScriptedDisk()).make(str(tmp_path / "a"), content_of(3 * STEP), 10 * STEP)
    assert (tmp_path / "a").read_bytes() == bytes(content_of(3 * STEP)[0]).ljust(10 * STEP, b"\0")


@pytest.mark.parametrize("kind", ["create", pytest.param("reserve", marks=needs_a_real_disk), "pwritev", "fdatasync"])
def test_errors_are_told(tmp_path: Path, kind: str) -> None:
    disk = ScriptedDisk()
    disk.fail(kind, code=errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        WholeFiles(disk).make(str(tmp_path / "a"), content_of(3 * STEP))


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        WholeFiles(ScriptedDisk()).make(str(tmp_path / "a"), content_of(3 * STEP))
    assert (tmp_path / "a").read_bytes() == b"old"
