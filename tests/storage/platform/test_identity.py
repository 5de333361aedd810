"""The identity of this machine since its start."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from acqstream.storage import platform
from acqstream.storage.platform import posix_process, windows_process

IS_KNOWN = sys.platform in ("linux", "win32")


@pytest.mark.skipif(not IS_KNOWN, reason="not tried on this system")
def test_two_programs_see_the_same_machine() -> None:
    program = "from acqstream.storage import platform; print(platform.boot_id())"
    other = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert other.stdout.strip() == platform.boot_id() != ""


def test_linux_without_proc_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posix_process, "BOOT_ID", tmp_path / "missing")
    assert posix_process.boot_id() == ""


def test_windows_tells_starts_and_copies_of_one_disk_image_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"MachineGuid": "1b1c".encode("utf-16-le") + b"\0\0", "BootId": (17).to_bytes(4, "little")}
    monkeypatch.setattr(windows_process, "_read", lambda _key, value, _kind: values[value])
    ids = [windows_process.boot_id()]
    assert re.fullmatch(r"1b1c-.+-17", ids[0])
    values["BootId"] = (18).to_bytes(4, "little")
    ids.append(windows_process.boot_id())
    monkeypatch.setattr("platform.node", lambda: "another-name")
    ids.append(windows_process.boot_id())
    assert len(set(ids)) == 3
    values["MachineGuid"] = b""
    assert windows_process.boot_id() == ""
