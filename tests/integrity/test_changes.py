"""Changes of a recovery: their order, and a crash between any two of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.integrity import recover as recover_module
from acqstream.integrity.changes import Change, Finish, Force, PutAside, Regrow, Remove, Replace, apply_changes
from acqstream.integrity.recover import recover
from acqstream.log import journal
from acqstream.storage.files.disk import Disk
from tests.log.crashed import content_of, crash, cut, entry_starts
from tests.log.make_frames import frames_of
from tests.log.read_back import stack_paths

FRAMES = 5


def torn_index(folder: Path) -> None:
    """The last two frames have no entry, the stack has bytes after the last frame, and another one was prepared."""
    cut(folder / INDEX_NAME, entry_starts(folder)[-3] + 7)
    with stack_paths(folder)[-1].open("ab") as file:
        file.write(b"?" * 5000)
    (folder / "cells_NDTiffStack_1.tif.part").write_bytes(b"")
    shutil.copy(stack_paths(folder)[0], folder / "cells_NDTiffStack_2.tif")


def torn_journal(folder: Path) -> None:
    """The last record is cut: the index alone proves its frame."""
    path = folder / journal.JOURNAL_NAME
    cut(path, path.stat().st_size - 1)


def no_header(folder: Path) -> None:
    """Its writer died while it created the dataset."""
    cut(folder / journal.JOURNAL_NAME, 100)
    cut(folder / INDEX_NAME, 0)


def changes_of(folder: Path, monkeypatch: pytest.MonkeyPatch, count: int | None = None) -> list[Change]:
    """The changes of a recovery of which the first `count` are made."""
    found: list[Change] = []

    def apply_first(changes: Sequence[Change], disk: Disk) -> None:
        found.extend(changes)
        apply_changes(changes[:count], disk)

    with monkeypatch.context() as patch:
        patch.setattr(recover_module, "apply_changes", apply_first)
        assert recover(folder) is not None
    return found


def kinds(changes: Sequence[Change]) -> list[tuple[type, str]]:
    return [(type(one), Path(one.held.path if isinstance(one, Force) else one.path).name) for one in changes]


def test_stacks_come_first_and_the_state_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = crash(tmp_path / "cells", list(frames_of(FRAMES)))
    torn_index(folder)
    stack = stack_paths(folder)[0].name
    assert kinds(changes_of(folder, monkeypatch)) == [
        (Finish, stack),
        (Remove, "cells_NDTiffStack_1.tif.part"),
        (PutAside, "cells_NDTiffStack_2.tif"),
        (Force, journal.JOURNAL_NAME),
        (Regrow, INDEX_NAME),
        (Regrow, journal.JOURNAL_NAME),
        (Remove, "receipt.json"),
        (Replace, "acqstream.json"),
    ]


def test_a_record_that_the_index_alone_proves_is_written_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = crash(tmp_path / "cells", list(frames_of(FRAMES)))
    torn_journal(folder)
    tails = [name for kind, name in kinds(changes_of(folder, monkeypatch)) if kind is Regrow]
    assert tails == [journal.JOURNAL_NAME, INDEX_NAME]


@pytest.mark.parametrize("damage", [torn_index, torn_journal, no_header])
def test_a_crash_between_any_two_changes_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    crashed = crash(tmp_path / "crashed", list(frames_of(FRAMES)))
    damage(crashed)
    copied = partial(shutil.copytree, crashed, tmp_path / "cells")
    count = len(changes_of(copied(), monkeypatch))
    expected = content_of(tmp_path / "cells")
    for made in range(count):
        shutil.rmtree(tmp_path / "cells")
        changes_of(copied(), monkeypatch, made)
        recover(tmp_path / "cells", is_resumed=True)
        assert content_of(tmp_path / "cells") == expected, made
