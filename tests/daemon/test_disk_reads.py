"""Reads that answer requests: in order, bounded, and refused where the disk stalls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from acqstream.daemon import resources
from acqstream.daemon.resources import MAX_WAITING, MAX_WAITING_OF_CLIENT, READ_S, DiskReads
from acqstream.errors import AcqStreamError, AcquisitionFailed, CorruptDataset, StorageError
from tests.waiting import until


class Desk:
    """Submits reads and notes their answers in the order in which they come."""

    def __init__(self) -> None:
        self.woken = threading.Event()
        self.reads = DiskReads(self.woken.set)
        self.answers: list[Any] = []
        self.errors: list[AcqStreamError] = []

    def submit(self, read: Callable[[], Any], client: bytes = b"one") -> None:
        def refuse(error: AcqStreamError) -> None:
            self.errors.append(error)
            self.answers.append(type(error))

        self.reads.submit(client, read, self.answers.append, refuse)

    def wait_for(self, count: int, now_s: float | None = None) -> None:
        def has_come() -> bool:
            self.reads.tick(time.monotonic() if now_s is None else now_s)
            return len(self.answers) >= count

        until(has_come, f"{count} answers")


class StalledDisk:
    """A read that stalls until the disk is mended."""

    def __init__(self) -> None:
        self.is_reached = threading.Event()
        self.is_mended = threading.Event()

    def read(self) -> str:
        self.is_reached.set()
        self.is_mended.wait()
        return "late"


@pytest.fixture
def desk() -> Iterator[Desk]:
    one = Desk()
    yield one
    one.reads.close()


@pytest.fixture
def stalled() -> Iterator[StalledDisk]:
    disk = StalledDisk()
    yield disk
    disk.is_mended.set()


def corrupt() -> None:
    raise CorruptDataset("torn")


def test_answers_and_errors_come_in_the_order_of_the_requests(desk: Desk) -> None:
    for number in range(MAX_WAITING_OF_CLIENT - 1):
        desk.submit(lambda number=number: number)  # type: ignore[misc]
    desk.submit(corrupt)
    desk.wait_for(MAX_WAITING_OF_CLIENT)
    assert desk.answers == [*range(MAX_WAITING_OF_CLIENT - 1), CorruptDataset]
    assert desk.woken.is_set(), "the loop must not sleep on"


def test_nothing_is_answered_from_another_thread(desk: Desk) -> None:
    desk.submit(lambda: 1)
    assert desk.woken.wait(60)
    assert desk.answers == []
    desk.wait_for(1)


def test_a_fault_is_an_error_of_its_request_alone(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources.logger, "disabled", True)
    desk.submit(lambda: 1 // 0)
    desk.submit(lambda: 2)
    desk.wait_for(2)
    assert desk.answers == [AcquisitionFailed, 2]
    assert "ZeroDivisionError" in str(desk.errors[0])


def test_a_stalled_disk_refuses_what_waits_and_serves_what_comes_later(desk: Desk, stalled: StalledDisk) -> None:
    desk.submit(stalled.read)
    desk.submit(lambda: "never read", b"two")
    assert stalled.is_reached.wait(60)
    desk.reads.tick(time.monotonic())
    assert desk.answers == [], "it has not taken long yet"
    desk.wait_for(2, time.monotonic() + READ_S)
    assert desk.answers == [StorageError, StorageError]
    assert f"did not answer within {READ_S:g} s" in str(desk.errors[0])
    assert desk.errors[0].code == "io_error"
    stalled.is_mended.set()
    desk.submit(lambda: "read")
    desk.wait_for(3)
    assert desk.answers[2:] == ["read"], "late results are dropped"


def test_what_waits_is_bounded_for_each_client_and_for_all(desk: Desk, stalled: StalledDisk) -> None:
    for _ in range(MAX_WAITING_OF_CLIENT):
        desk.submit(stalled.read, b"greedy")
    with pytest.raises(StorageError, match="requests wait for the disk"):
        desk.submit(stalled.read, b"greedy")
    for number in range(MAX_WAITING - MAX_WAITING_OF_CLIENT):
        desk.submit(stalled.read, f"{number}".encode())
    with pytest.raises(StorageError, match=f"{MAX_WAITING} requests wait for the disk"):
        desk.submit(stalled.read, b"another")


def test_the_end_does_not_wait_for_a_stalled_disk(desk: Desk, stalled: StalledDisk) -> None:
    desk.submit(stalled.read)
    assert stalled.is_reached.wait(60)
    desk.wait_for(1, time.monotonic() + READ_S)  # refused, and still being read
    desk.reads.close()
    assert not stalled.is_mended.is_set()


def test_without_requests_there_is_no_thread(desk: Desk) -> None:
    desk.reads = DiskReads(desk.woken.set, name="of-this-test")  # a stalled one of another test may still end
    assert "of-this-test" not in [thread.name for thread in threading.enumerate()]
    desk.submit(lambda: 1)
    assert "of-this-test" in [thread.name for thread in threading.enumerate()]
    desk.wait_for(1)
    until(lambda: desk.reads._n_run == 1, "the thread waits again")
    desk.reads.close()
    assert "of-this-test" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("is_corrupt", [False, True])
def test_a_read_that_ends_after_its_error_keeps_the_error(is_corrupt: bool) -> None:
    """The thread and the loop may set the outcome at the same moment: it is never half of each."""

    def read() -> str:
        assert one.is_answerable(time.monotonic() + READ_S), "overdue while it is being read"
        if is_corrupt:
            corrupt()
        return "late"

    one = resources._ReadRequest(b"one", read, lambda _result: None, lambda _error: None)
    one.run()
    assert one.outcome is not None
    result, error = one.outcome
    assert (result, type(error)) == (None, StorageError)
