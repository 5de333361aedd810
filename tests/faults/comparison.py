"""What is in a dataset, by our reader and by ndstorage, against the plan of what was sent: counted, not asserted."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import xxhash

import acqstream
from acqstream.errors import AcqStreamError
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.log import journal
from acqstream.log.journal_file import read_journal
from acqstream.log.state_file import read_receipt
from acqstream.model.metadata import dump_ascii
from tests.faults.fault_result import Try
from tests.faults.frame_plan import FramePlan
from tests.faults.producer_process import Report
from tests.log.read_back import open_ndstorage

ReadFrame = Callable[[int], tuple[Any, Any]]
"""Image and metadata of the frame with this number."""

_opening = threading.Lock()  # what ndstorage prints is kept back by changing sys.stdout


def compare(folder: Path, plan: FramePlan, one: Try, *, acknowledged: int, when: str, may_refuse: bool = False) -> None:
    """Both readers: every listed frame is right, they are the first ones, and all numbers below acknowledged are there.

    may_refuse: the dataset was not recovered after a power cut, so our reader too may refuse it or a frame.
    """
    _compare_ours(folder, plan, one, acknowledged, f"{when}, by us", may_refuse=may_refuse)
    if acknowledged or (folder / INDEX_NAME).exists():
        _compare_ndstorage(folder, plan, one, f"{when}, by ndstorage")


def _compare_ours(folder: Path, plan: FramePlan, one: Try, acknowledged: int, when: str, *, may_refuse: bool) -> None:
    expected = plan.stored_below(acknowledged)
    try:
        dataset = acqstream.open(folder)
    except AcqStreamError as error:
        if not may_refuse and expected:
            one.lose(f"{when}: {error}", expected)
        return
    with dataset:
        listed = [plan.number(key) for key in list(dataset.keys())]
        _check_numbers(listed, plan, one, when)
        if not may_refuse:
            one.lose(when, sorted(set(expected) - set(listed)))

        def read(number: int) -> tuple[Any, Any]:
            key = plan.axes(number)
            return dataset.read_frame(key), dataset.read_metadata(key)

        refused = _read_all(listed, plan, one, when, read)
        one.expect(may_refuse or not refused, f"{when}: refuses listed frames {refused[:5]}")


def _compare_ndstorage(folder: Path, plan: FramePlan, one: Try, when: str) -> None:
    """It may refuse, also single frames, but must not show a wrong one."""
    try:
        with _ndstorage(folder) as dataset:
            listed = sorted(map(plan.number, dataset.get_image_coordinates_list()))

            def read(number: int) -> tuple[Any, Any]:
                key = plan.axes(number)
                return dataset.read_image(**key), dataset.read_metadata(**key)

            _read_all(listed, plan, one, when, read)
    except Exception:  # noqa: BLE001 - it has no errors of its own; whatever it raises is a refusal
        return


@contextlib.contextmanager
def _ndstorage(folder: Path) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        with _opening:
            dataset = stack.enter_context(open_ndstorage(folder))
        yield dataset


def _read_all(listed: list[int], plan: FramePlan, one: Try, when: str, read: ReadFrame) -> list[int]:
    """Compare each listed frame; the numbers that the reader refuses."""
    wrong, refused = [], []
    for number in listed:
        try:
            image, metadata = read(number)
        except Exception:  # noqa: BLE001 - an error is a refusal, whoever's it is
            refused.append(number)
            continue
        if plan.is_skipped(number) or not plan.is_right(number, image, metadata):
            wrong.append(number)
    one.mistake(when, wrong)
    return refused


def _check_numbers(listed: list[int], plan: FramePlan, one: Try, when: str) -> None:
    count = max(listed, default=-1) + 1
    one.expect(
        listed == plan.stored_below(count), f"{when}: the {len(listed)} frames are not the first ones, each once"
    )


def check_end(folder: Path, plan: FramePlan, one: Try, report: Report) -> None:
    """A completed run: sent = stored + skipped, by producer, receipt and files, and every frame read back."""
    one.expect(not report.error, f"the producer ended with {report.error}: {report.text}")
    if report.error:
        return
    one.expect(read_receipt(str(folder)) == report.receipt, "receipt.json is not the receipt that the producer got")
    said = report.receipt.sent if report.receipt is not None else None
    one.expect(said == report.sent, f"the receipt says {said} sent, the producer {report.sent}")
    check_complete(folder, plan, one)


def check_complete(folder: Path, plan: FramePlan, one: Try) -> None:
    """A dataset that was closed: its receipt, its files and the plan say the same, and every frame is read back."""
    receipt = read_receipt(str(folder))
    if receipt is None or receipt.sent is None:
        one.expect(False, f"closed, but the receipt is {receipt}")
        return
    stored = len(plan.stored_below(receipt.sent))
    skipped = receipt.sent - stored
    missing = sum(gap.count for gap in receipt.missing)
    told = (receipt.status, receipt.stored, receipt.skipped, missing, receipt.without_checksum)
    expected = ("completed", stored, skipped, skipped, 0)
    one.expect(told == expected, f"the receipt says {told}, the plan {expected}; {receipt.missing[:3]}")
    count_files(folder, one, stored)
    _compare_journal(folder, plan, one, receipt.sent)
    compare(folder, plan, one, acknowledged=receipt.sent, when="at the end")


def _compare_journal(folder: Path, plan: FramePlan, one: Try, sent: int) -> None:
    """Every number is in it, and every frame has the checksums and the time of what was sent."""
    records = read_journal(folder / journal.JOURNAL_NAME).prefix
    frames = records[records["flags"] == journal.FRAME]
    columns = (frames[name].tolist() for name in ("number", "checksum", "metadata_checksum", "timed", "time_ns"))
    told = {number: facts for number, *facts in zip(*columns, strict=True)}
    expected = {number: _facts(plan, number) for number in plan.stored_below(sent)}
    count = journal.next_number(records)
    one.expect(count == sent, f"the journal has {count} numbers, {sent} were sent")
    differing = [number for number in sorted(told.keys() | expected.keys()) if told.get(number) != expected.get(number)]
    one.expect(not differing, f"records of the journal are not those of what was sent: {differing[:5]}")


def _facts(plan: FramePlan, number: int) -> list[int]:
    text, time_ns = dump_ascii(plan.stored_metadata(number)), plan.time_ns(number)
    sums = [xxhash.xxh3_64_intdigest(data) for data in (plan.image(number).tobytes(), text)]
    return [*sums, int(time_ns is not None), time_ns or 0]


def count_files(folder: Path, one: Try, stored: int) -> None:
    """The files' own count, by other people's reader of the index."""
    with _ndstorage(folder) as dataset:
        found = len(dataset.get_image_coordinates_list())
    one.expect(found == stored, f"the files hold {found} frames, {stored} were sent")
