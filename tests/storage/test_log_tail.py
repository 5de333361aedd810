from __future__ import annotations

from pathlib import Path

from acqstream.storage.files.small_file import last_lines


def test_the_last_lines_of_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    path.write_text("".join(f"line {number}\n" for number in range(100_000)), encoding="utf-8")
    assert last_lines(path, 3) == ["line 99997", "line 99998", "line 99999"]


def test_a_short_file_and_none_at_all(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    path.write_bytes(b"one\nan \xff and no end")
    assert last_lines(path, 3) == ["one", "an \ufffd and no end"]
    assert last_lines(tmp_path / "missing", 3) == []
    assert last_lines(tmp_path, 3) == []
