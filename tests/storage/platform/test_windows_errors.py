"""Windows' error codes as errno, and waiting for those that pass. Runs everywhere."""

from __future__ import annotations

import errno
import sys

import pytest

from acqstream.errors import DiskFull, StorageError
from acqstream.storage.platform import windows_api
from acqstream.storage.platform.windows_api import IN_USE, own_error, until_free, windows_error

FULL = [39, 112, 1295]
OF_THE_DEVICE = [21, 23, 31, 433, 483, 1117, 1167, 1392]
OF_THE_SHARE = [53, 55, 59, 64, 67, 121, 1231, 1236]


@pytest.mark.parametrize(
    ("code", "kind", "number"),
    [
        (2, FileNotFoundError, errno.ENOENT),
        (3, FileNotFoundError, errno.ENOENT),
        (5, PermissionError, errno.EACCES),
        (32, PermissionError, errno.EACCES),
        (33, PermissionError, errno.EACCES),
        (303, PermissionError, errno.EACCES),
        (80, FileExistsError, errno.EEXIST),
        (183, FileExistsError, errno.EEXIST),
        (267, NotADirectoryError, errno.ENOTDIR),
        (19, OSError, errno.EROFS),
        (206, OSError, errno.ENAMETOOLONG),
        (1224, OSError, errno.EBUSY),
        (1295, OSError, errno.EDQUOT),
        (87, OSError, errno.EINVAL),
    ],
)
def test_a_code_has_the_class_and_number_of_other_systems(code: int, kind: type[OSError], number: int) -> None:
    error = windows_error(code, "C:\\data\\file")
    assert (type(error), error.errno, error.filename) == (kind, number, "C:\\data\\file")
    assert f"Windows error {code}" in str(error)


@pytest.mark.parametrize("code", FULL)
def test_a_full_disk_or_quota_is_told_from_all_else(code: int) -> None:
    assert isinstance(StorageError.wrap(windows_error(code), "file", "cannot write"), DiskFull)


@pytest.mark.parametrize("code", [*OF_THE_DEVICE, *OF_THE_SHARE, 99_999])
def test_a_lost_device_or_share_never_passes_for_missing_direct_io(code: int) -> None:
    error = windows_error(code)
    assert error.errno == errno.EIO
    assert not isinstance(StorageError.wrap(error, "file", "cannot write"), DiskFull)


def test_an_error_of_python_has_the_number_that_its_code_has_here() -> None:
    error = OSError(errno.EINVAL, "Invalid name", "a|b")
    assert own_error(error) is error
    error = OSError(errno.EINVAL, "Invalid name", "a|b", 123)
    if sys.platform != "win32":  # there the last argument is the code
        vars(error)["winerror"] = 123
    assert isinstance(own_error(error), FileNotFoundError)
    assert own_error(error).filename == "a|b"


def test_no_code_has_two_meanings() -> None:
    codes = [code for codes in windows_api._CODES.values() for code in codes]
    assert len(codes) == len(set(codes))
    assert {code for code, number in windows_api._ERRNO.items() if number == errno.EINVAL} == {87}


class Clock:
    """Time that passes by sleeping only."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.waits_s: list[float] = []

    def read(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.waits_s.append(seconds)
        self.now_s += seconds


@pytest.mark.parametrize("code", sorted(IN_USE))
def test_a_file_in_use_is_waited_for_one_second_in_growing_steps(code: int) -> None:
    clock = Clock()
    assert until_free(lambda: (None, code), sleep=clock.sleep, clock=clock.read) == (None, code)
    assert clock.waits_s[:8] == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.064]
    assert sum(clock.waits_s) == pytest.approx(1.0)
    assert max(clock.waits_s) == 0.064


def test_the_result_is_that_of_the_first_attempt_that_succeeds() -> None:
    clock, answers = Clock(), iter([(-1, 32), (-1, 5), (-1, 303), (7, 0)])
    assert until_free(lambda: next(answers), sleep=clock.sleep, clock=clock.read) == (7, 0)
    assert clock.waits_s == [0.001, 0.002, 0.004]


@pytest.mark.parametrize("code", [0, 2, 39, 112, 1117, 1224])
def test_no_other_error_is_waited_for(code: int) -> None:
    clock, answers = Clock(), iter([("first", code), ("second", 0)])
    assert until_free(lambda: next(answers), sleep=clock.sleep, clock=clock.read) == ("first", code)
    assert clock.waits_s == []
