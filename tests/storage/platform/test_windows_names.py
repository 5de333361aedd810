"""Names of files on Windows, by the calls that the system gets; a stand-in for its library runs everywhere."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from acqstream.storage.platform import windows_api, windows_files, windows_names
from acqstream.storage.platform.windows_files import WindowsFiles

FOLDER, LINK, NONE = 0x10, 0x400, 0xFFFF_FFFF
GENERIC_WRITE, DELETE, BACKUP_SEMANTICS = 0x4000_0000, 0x0001_0000, 0x0200_0000
END_OF_FILE, DISPOSITION_EX, RENAME_EX = 6, 21, 22


class Kernel:
    """Answers each call with the next of its codes, then with success. Notes calls, and handles that are open."""

    def __init__(self) -> None:
        self.codes: dict[str, list[int]] = {}
        self.attributes: dict[str, int] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.open_handles: set[int] = set()
        self.code = 0

    def CreateFileW(self, name: str, access: int, share: int, _: None, how: int, flags: int, __: None) -> int | None:
        if not self._answer("CreateFileW", name, access, flags):
            return -1 % 2**64
        assert share == 7, "others may read, write and remove"
        self.open_handles.add(100 + len(self.calls))
        return 100 + len(self.calls)

    def SetFileInformationByHandle(self, handle: int, kind: int, value: Any, size: int) -> int:
        assert handle in self.open_handles
        return self._answer("SetFileInformationByHandle", kind)

    def MoveFileExW(self, source: str, target: str, flags: int) -> int:
        assert not self.open_handles, "a handle with DELETE would be in the way"
        return self._answer("MoveFileExW", source, target, flags)

    def DeleteFileW(self, name: str) -> int:
        return self._answer("DeleteFileW", name)

    def RemoveDirectoryW(self, name: str) -> int:
        return self._answer("RemoveDirectoryW", name)

    def FlushFileBuffers(self, handle: int) -> int:
        assert handle in self.open_handles
        return self._answer("FlushFileBuffers", handle)

    def GetFileAttributesW(self, name: str) -> int:
        return self.attributes.get(name, NONE)

    def close_handle(self, handle: int) -> None:
        self.code = 0  # a code that is asked for later than that is lost
        self.open_handles.remove(handle)

    def names(self) -> list[str]:
        return [call[0] for call in self.calls]

    def _answer(self, name: str, *arguments: Any) -> int:
        self.calls.append((name, *arguments))
        codes = self.codes.get(name, [])
        self.code = codes.pop(0) if codes else 0
        return int(not self.code)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    kernel = Kernel()
    for module in (windows_api, windows_names, windows_files):
        monkeypatch.setattr(module, "kernel32", lambda: kernel)
        monkeypatch.setattr(module, "last_error", lambda: kernel.code)
        monkeypatch.setattr(module, "close_handle", kernel.close_handle)
    monkeypatch.setattr(windows_names, "file_users", lambda path: [])
    monkeypatch.setattr(windows_api, "PATIENCE_S", 0.02)
    yield kernel
    assert not kernel.open_handles


def test_a_file_is_renamed_by_a_handle_of_its_own(kernel: Kernel) -> None:
    assert not windows_names.replace(r"C:\a", r"C:\b")
    name, path, access, flags = kernel.calls[0]
    assert (name, path, access) == ("CreateFileW", r"\\?\C:\a", DELETE)
    assert flags & BACKUP_SEMANTICS
    assert kernel.calls[1:] == [("SetFileInformationByHandle", RENAME_EX)]


@pytest.mark.parametrize("code", [1, 50, 87, 120, 124, 665])
def test_without_posix_semantics_a_file_is_moved_and_its_name_forced(kernel: Kernel, code: int) -> None:
    kernel.codes["SetFileInformationByHandle"] = [code]
    assert windows_names.replace(r"C:\a", r"C:\b")
    assert kernel.calls[-1] == ("MoveFileExW", r"\\?\C:\a", r"\\?\C:\b", 1 | 8)


@pytest.mark.parametrize("code", [5, 17, 32, 112, 1117])
def test_another_error_of_a_rename_is_no_reason_to_move(kernel: Kernel, code: int) -> None:
    kernel.codes["SetFileInformationByHandle"] = [code] * 1000
    with pytest.raises(OSError, match=rf"Windows error {code}\b"):
        windows_names.replace(r"C:\a", r"C:\b")
    assert "MoveFileExW" not in kernel.names()


def test_a_move_onto_a_file_in_use_is_repeated(kernel: Kernel) -> None:
    kernel.codes["SetFileInformationByHandle"] = [87] * 3
    kernel.codes["MoveFileExW"] = [5, 32]
    assert windows_names.replace(r"C:\a", r"C:\b")
    assert kernel.names().count("MoveFileExW") == 3


def test_a_file_is_removed_by_a_handle(kernel: Kernel) -> None:
    windows_names.unlink(r"C:\a")
    assert kernel.names() == ["CreateFileW", "SetFileInformationByHandle"]
    assert kernel.calls[1][1] == DISPOSITION_EX


def test_without_posix_semantics_a_file_gives_its_name_up_first(kernel: Kernel) -> None:
    kernel.codes["SetFileInformationByHandle"] = [87]
    windows_names.unlink(r"C:\a")
    move, delete = kernel.calls[-2:]
    assert move[:2] == ("MoveFileExW", r"\\?\C:\a")
    assert delete == ("DeleteFileW", move[2])


def test_a_file_that_cannot_be_removed_keeps_its_name(kernel: Kernel) -> None:
    kernel.codes["SetFileInformationByHandle"] = [87]
    kernel.codes["DeleteFileW"] = [19]
    with pytest.raises(OSError, match="Windows error 19") as caught:
        windows_names.unlink(r"C:\a")
    assert caught.value.errno == errno.EROFS
    assert kernel.calls[-1][0] == "MoveFileExW"
    assert kernel.calls[-1][2] == r"\\?\C:\a"


def test_a_folder_is_no_file_but_a_link_to_one_is(kernel: Kernel) -> None:
    kernel.attributes[r"\\?\C:\a"] = FOLDER
    with pytest.raises(IsADirectoryError):
        windows_names.unlink(r"C:\a")
    assert not kernel.calls
    kernel.attributes[r"\\?\C:\a"] = FOLDER | LINK
    windows_names.unlink(r"C:\a")
    assert kernel.calls


def test_access_that_a_folder_denies_is_not_waited_for(kernel: Kernel) -> None:
    kernel.codes["CreateFileW"] = [5] * 1000
    kernel.attributes[r"\\?\C:\a"] = FOLDER
    with pytest.raises(PermissionError):
        windows_names.open_handle(r"C:\a", GENERIC_WRITE, 3)
    assert len(kernel.calls) == 1


@pytest.mark.parametrize("code", [5, 32, 145])
def test_a_folder_is_removed_when_its_last_file_has_gone(kernel: Kernel, code: int) -> None:
    kernel.codes["RemoveDirectoryW"] = [code, code]
    windows_names.rmdir(r"C:\a")
    assert kernel.calls == [("RemoveDirectoryW", r"\\?\C:\a")] * 3


def test_a_folder_with_content_is_not_removed(kernel: Kernel) -> None:
    kernel.codes["RemoveDirectoryW"] = [145] * 1000
    with pytest.raises(OSError, match="Windows error 145") as caught:
        windows_names.rmdir(r"C:\a")
    assert caught.value.errno == errno.ENOTEMPTY


def cut(kernel: Kernel) -> None:
    fd = WindowsFiles().open(r"C:\a", create=True)
    try:
        windows_files._set_length(fd, 10)
    finally:
        kernel.open_handles.remove(fd)


def test_a_file_that_a_scanner_has_mapped_for_a_moment_is_cut(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_api, "PATIENCE_S", 60.0)  # a busy machine pauses for longer than 20 ms
    kernel.codes["SetFileInformationByHandle"] = [1224, 1224]
    cut(kernel)
    assert kernel.calls[1:] == [("SetFileInformationByHandle", END_OF_FILE)] * 3


def test_a_file_that_stays_mapped_is_not_cut(kernel: Kernel) -> None:
    kernel.codes["SetFileInformationByHandle"] = [1224] * 1000
    with pytest.raises(OSError, match="Windows error 1224") as caught:
        cut(kernel)
    assert caught.value.errno == errno.EBUSY


def sync_after_rename(kernel: Kernel) -> list[tuple[Any, ...]]:
    """Rename a file and force its folder; return the calls for the folder."""
    files = WindowsFiles()
    files.replace(r"C:\data\a", r"C:\data\b")
    count = len(kernel.calls)
    files.sync_directory(r"C:\data")
    return kernel.calls[count:]


def test_a_name_that_could_not_be_forced_is_forced_by_the_next_call(kernel: Kernel) -> None:
    files = WindowsFiles()
    files.replace(r"C:\data\a", r"C:\data\b")
    kernel.codes["FlushFileBuffers"] = [1117]  # ERROR_IO_DEVICE
    with pytest.raises(OSError, match="Windows error 1117"):
        files.sync_directory(r"C:\data")
    count = len(kernel.calls)
    files.sync_directory(r"C:\data")
    assert [call[0] for call in kernel.calls[count:]] == ["CreateFileW", "FlushFileBuffers"]
    files.sync_directory(r"C:\data")
    assert len(kernel.calls) == count + 2


def test_a_second_thread_waits_until_the_name_is_forced(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    files, is_forcing, may_end = WindowsFiles(), threading.Event(), threading.Event()
    done: list[str] = []

    def force(handle: int) -> None:
        is_forcing.set()
        may_end.wait()
        done.append("forced")

    def sync() -> None:
        files.sync_directory(r"C:\data")
        done.append("returned")

    files.replace(r"C:\data\a", r"C:\data\b")
    monkeypatch.setattr(files, "fdatasync", force)
    threads = [threading.Thread(target=sync, daemon=True) for _ in range(2)]
    threads[0].start()
    is_forcing.wait()
    threads[1].start()
    threads[1].join(0.2)  # time to go wrong
    assert done == []
    may_end.set()
    for thread in threads:
        thread.join()
    assert done == ["forced", "returned", "returned"]


def test_a_name_is_forced_by_the_file(kernel: Kernel) -> None:
    opening, flush = sync_after_rename(kernel)
    assert opening[:3] == ("CreateFileW", r"\\?\C:\data\b", GENERIC_WRITE)
    assert flush[0] == "FlushFileBuffers"


@pytest.mark.parametrize("code", [2, 5, 32])
def test_a_name_is_forced_although_its_file_cannot_be_opened(kernel: Kernel, code: int) -> None:
    """It was removed since, is a folder, or another program has it: names of other threads must still be forced."""
    kernel.codes["CreateFileW"] = [0, *[code] * 1000]
    real = kernel.CreateFileW

    def create(name: str, *arguments: Any) -> int | None:
        if name == r"\\?\C:\data":
            kernel.codes["CreateFileW"] = []
        return real(name, *arguments)

    vars(kernel)["CreateFileW"] = create
    *_, opening, flush = sync_after_rename(kernel)
    assert opening[:3] == ("CreateFileW", r"\\?\C:\data", GENERIC_WRITE)
    assert opening[3] & BACKUP_SEMANTICS
    assert flush[0] == "FlushFileBuffers"


def test_a_move_that_is_on_the_disk_already_is_not_forced_again(kernel: Kernel) -> None:
    kernel.codes["SetFileInformationByHandle"] = [50]
    assert sync_after_rename(kernel) == []
