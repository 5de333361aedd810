"""Which programs have a file open, as the Restart Manager answers; a stand-in for its library runs everywhere."""

from __future__ import annotations

import ctypes
import errno
from pathlib import Path
from typing import Any

import pytest

from acqstream.storage.platform import windows_names
from acqstream.storage.platform import windows_names as windows_file_users
from acqstream.storage.platform.windows_names import ProgramInformation, file_users


class RestartManager:
    """Answers with `programs`; a call whose name is in `codes` fails with that code."""

    def __init__(self, programs: list[tuple[str, int]], **codes: int) -> None:
        self.programs, self.codes = programs, codes
        self.paths: list[str] = []
        self.n_open = 0

    def RmStartSession(self, session: Any, flags: int, key: Any) -> int:
        assert len(key) == 33, "CCH_RM_SESSION_KEY + 1: the system writes that many"
        code = self.codes.get("RmStartSession", 0)
        self.n_open += not code
        return code

    def RmEndSession(self, session: Any) -> int:
        self.n_open -= 1
        return 0

    def RmRegisterResources(self, session: Any, count: int, paths: Any, *rest: Any) -> int:
        self.paths += paths[:count]
        return self.codes.get("RmRegisterResources", 0)

    def RmGetList(self, session: Any, total: Any, count: Any, programs: Any, reasons: Any) -> int:
        total._obj.value = len(self.programs)
        if len(programs) < len(self.programs):
            return 234
        count._obj.value = len(self.programs)
        for place, (name, process) in zip(programs, self.programs, strict=False):
            place.name, place.process = name, process
        return self.codes.get("RmGetList", 0)


def use(monkeypatch: pytest.MonkeyPatch, manager: RestartManager) -> None:
    monkeypatch.setattr(windows_file_users, "rstrtmgr", lambda: manager)


@pytest.mark.parametrize("count", [0, 1, 8])
def test_each_program_is_named_with_its_process(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    manager = RestartManager([(f"Program {number}", 100 + number) for number in range(count)])
    use(monkeypatch, manager)
    assert file_users(r"\\?\C:\data\a.tif") == [f"Program {number} ({100 + number})" for number in range(count)]
    assert manager.paths == [r"C:\data\a.tif"]
    assert manager.n_open == 0


def test_of_many_programs_eight_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, RestartManager([("python", number) for number in range(20)]))
    assert file_users("a") == [f"python ({number})" for number in range(8)]


@pytest.mark.parametrize("call", ["RmStartSession", "RmRegisterResources", "RmGetList"])
def test_without_an_answer_no_program_is_named(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    manager = RestartManager([("python", 1)], **{call: 5})
    use(monkeypatch, manager)
    assert file_users("a") == []
    assert manager.n_open == 0


def test_a_system_without_the_library_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError("rstrtmgr.dll is missing")

    monkeypatch.setattr(windows_file_users, "rstrtmgr", refuse)
    assert file_users("a") == []


def test_the_error_of_a_file_in_use_names_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, RestartManager([("Micro-Manager", 4711), ("Fiji", 12)]))
    error = windows_names._error(32, "a.tif")
    assert isinstance(error, PermissionError)
    assert "open in Micro-Manager (4711), Fiji (12)" in str(error)
    assert error.filename == "a.tif"


def test_other_errors_ask_for_no_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    manager = RestartManager([("python", 1)])
    use(monkeypatch, manager)
    error = windows_names._error(112, str(tmp_path))
    assert error.errno == errno.ENOSPC
    assert "open in" not in str(error)
    assert not manager.paths


def test_the_structure_has_the_size_of_the_header() -> None:
    if ctypes.sizeof(ctypes.c_wchar) != 2:
        pytest.skip("c_wchar has 2 bytes on Windows only")
    assert ctypes.sizeof(ProgramInformation) == 668
