"""A copy of a mirror is proved by its lists of checksums, in every format, on any machine, without the log."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acqstream.errors import CorruptDataset
from acqstream.formats.checksum_list import (
    DOCUMENT,
    FOLDER,
    ChecksumNote,
    ChecksumPage,
    Entry,
    list_key,
    list_number,
    page_bytes,
    parse_note,
    read_pages,
)
from acqstream.formats.registry import chunk_format
from acqstream.integrity.container_proof import ChunkVerification, _Records, verify_chunks
from acqstream.mirrors.task_runner import ProcessPool, TaskRunner
from tests.log.make_frames import write_log
from tests.mirrors.mirror_cases import finish, frames_at, places_of, run_of

KINDS: Mapping[str, Mapping[str, Any]] = {
    "n5": {"format": "n5", "blocks": [2, 16, 16], "levels": 2},
    "n5 array": {"format": "n5", "layout": "array", "blocks": [2, 16, 16], "levels": 2, "compression": "raw"},
    "wkw raw": {"format": "wkw", "cube": 32, "levels": 2, "compression": "raw"},
    "wkw": {"format": "wkw", "cube": 32, "levels": 2},
    "ome-zarr raw": {"format": "ome-zarr", "chunks": [2, 16, 16], "levels": 2, "compression": "none"},
    "ome-zarr": {"format": "ome-zarr", "chunks": [2, 16, 16], "levels": 2},
    "ome-zarr unsharded": {"format": "ome-zarr", "chunks": [2, 16, 16], "levels": 2, "shards": False},
    "hsds": {"format": "hsds", "pixels": "copy", "chunks": [2, 16, 16], "levels": 2},
    "precomputed": {"format": "precomputed", "chunks": [2, 16, 16], "levels": 2},
    "precomputed shards": {"format": "precomputed", "chunks": [2, 16, 16], "levels": 2, "shards": True},
}
SHAPE = (40, 50)
FRAMES = frames_at(places_of(("time", "channel", "z"), {"time": 2, "channel": 2, "z": 5}), SHAPE)


def mirror_of(tmp_path: Path, kind: str, **more: Any) -> Path:
    settings = KINDS[kind]
    if not (tmp_path / "cells").exists():
        write_log(tmp_path / "cells", FRAMES)
    run = finish(run_of(tmp_path / "cells", settings, name=str(settings["format"]), **more))
    assert run.reason == ""
    container = more.get("container") or tmp_path / f"cells{chunk_format(str(settings['format'])).suffix}"
    assert isinstance(container, Path)
    return container


def verify(container: Path, kind: str) -> ChunkVerification:
    return verify_chunks(container, chunk_format(str(KINDS[kind]["format"])))


def lists_of(container: Path) -> Path:
    return container.with_name(f"{container.name}.view") / FOLDER


def entries_of(container: Path) -> list[Entry]:
    found = []
    for path in sorted(lists_of(container).glob("*.sums")):
        for page in read_pages(path.read_bytes()):
            if isinstance(page, ChecksumPage):
                found += [page.entry(row) for row in range(len(page.records))]
    return found


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << random.Random(at).randrange(8)
    path.write_bytes(content)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", KINDS)
def test_one_flipped_bit_in_any_chunk_is_found_and_named(tmp_path: Path, kind: str) -> None:
    made = mirror_of(tmp_path, kind)
    shutil.rmtree(tmp_path / "cells")
    container = tmp_path / "elsewhere" / made.name  # a copy proves itself
    shutil.copytree(made, container)
    result = verify(container, kind)
    assert (result.ok, result.proved) == (True, [])
    assert f"there is no list of checksums; a mirror has it in {made.name}.view" in result.not_proved[0]
    shutil.copytree(lists_of(made), container / FOLDER)  # as mirrors of earlier versions have it
    older = verify(container, kind)
    (container / FOLDER).rename(container.with_name("kept"))
    shutil.copytree(lists_of(made).parent, lists_of(container).parent)
    result = verify(container, kind)
    assert (result.ok, result.not_proved, result.proved) == (True, [], older.proved)
    chunks = [entry for entry in entries_of(container) if entry.level != DOCUMENT and entry.length]
    assert f"{len(chunks):,} chunks and " in result.proved[0]
    picked = random.Random(kind).sample(chunks, 8)
    for entry in picked:
        path = container / entry.key
        before = path.read_bytes()
        flip(path, entry.offset + random.Random(str(entry)).randrange(entry.length))
        result = verify(container, kind)
        assert not result.ok
        assert result.proved == []
        named = [one for one in result.problems if "is not as it was stored" in one.text]
        assert [(Path(one.path), one.offset) for one in named] == [(path, entry.offset)]
        assert f"of level {entry.level} (" in named[0].text
        assert "z " in named[0].text
        path.write_bytes(before)
    assert verify(container, kind).ok


def test_the_frames_of_a_chunk_are_named() -> None:
    note = ChecksumNote(("time", "z", "y", "x"), ((1, 16, 64, 64), (1, 16, 32, 32)), False, True)
    assert note.frames_text(0, (3, 1, 0, 7)) == "time 3, z 16 to 31"
    assert note.frames_text(5, (3, 1, 0, 7)) == ""


@pytest.mark.parametrize("kind", ["n5", "ome-zarr raw", "precomputed shards"])
def test_removed_and_cut_files_are_named(tmp_path: Path, kind: str) -> None:
    container = mirror_of(tmp_path, kind)
    entry = next(entry for entry in entries_of(container) if entry.level == 0)
    path = container / entry.key
    content = path.read_bytes()
    path.write_bytes(content[: entry.offset + entry.length - 1])
    assert "has been cut" in " ".join(one.text for one in verify(container, kind).problems if one.path == str(path))
    path.unlink()
    texts = [one.text for one in verify(container, kind).problems if one.path == str(path)]
    assert any("of level 0" in text and "is missing" in text for text in texts)


def test_a_changed_document_is_named(tmp_path: Path) -> None:
    container = mirror_of(tmp_path, "ome-zarr")
    path = container / "0" / "zarr.json"
    content = path.read_text()
    path.write_text(content + " ")
    (problem,) = verify(container, "ome-zarr").problems
    text = f"this document is not as it was stored: the file has {len(content) + 1} bytes, expected {len(content)}"
    assert (problem.path, problem.text) == (str(path), text)
    path.write_text(content.replace(" ", "\n", 1))
    (problem,) = verify(container, "ome-zarr").problems
    assert problem.text == "this document is not as it was stored: its checksum differs"


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_mirror_that_was_made_in_parts_is_proved_whole(tmp_path: Path, kind: str) -> None:
    write_log(tmp_path / "cells", FRAMES)
    for _ in range(3):  # killed: what was stored is not announced, or is stored again
        run = run_of(tmp_path / "cells", KINDS[kind], name=str(KINDS[kind]["format"]))
        for _ in range(6):
            run.step()
        run.close()
    container = mirror_of(tmp_path, kind)
    result = verify(container, kind)
    assert (result.ok, result.not_proved) == (True, [])
    assert result.proved


@pytest.mark.parametrize("kind", ["n5", "wkw raw", "ome-zarr", "hsds", "precomputed shards"])
def test_processes_that_make_a_mirror_together_prove_all_of_it(tmp_path: Path, kind: str) -> None:
    with TaskRunner(lambda: ProcessPool(2), 1) as runner:
        container = mirror_of(tmp_path, kind, runner=runner)
    result = verify(container, kind)
    assert (result.ok, result.not_proved) == (True, [])
    assert result.proved


def test_an_older_mirror_has_no_list_and_one_that_goes_on_a_part_of_it(tmp_path: Path) -> None:
    container = mirror_of(tmp_path, "n5")
    shutil.rmtree(lists_of(container))
    result = verify(container, "n5")
    assert (result.ok, result.proved) == (True, [])
    assert "there is no list of checksums" in result.not_proved[0]


def test_a_list_that_is_damaged_is_told(tmp_path: Path) -> None:
    container = mirror_of(tmp_path, "n5")
    (path,) = lists_of(container).glob("*.sums")
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    result = verify(container, "n5")
    assert result.not_proved == ["that every chunk is as it was stored: the lists of checksums are not complete"]
    path.write_bytes(content[:50] + b"?" + content[51:] + page_bytes([], 5))
    problems = verify(container, "n5").problems
    assert any("its checksums from here on are not compared" in one.text for one in problems)
    path.write_bytes(page_bytes([Entry(0, (0, 0), "a", 0, 1, 2)], 2, is_closed=True))
    (problem,) = verify(container, "n5").problems
    assert "records with 2 axes, expected 5" in problem.text


@pytest.mark.parametrize("key", ["../../secret", "/etc/passwd", "a\0b", ""])
def test_a_key_that_leads_out_is_not_followed(tmp_path: Path, key: str) -> None:
    container = mirror_of(tmp_path, "n5")
    (path,) = lists_of(container).glob("*.sums")
    path.write_bytes(page_bytes([Entry(0, (0,) * 5, key, 0, 2**63, 2)], 5, is_closed=True))
    (problem,) = verify(container, "n5").problems
    assert "is listed under a name that no file has" in problem.text


@pytest.mark.parametrize("content", [b"", b"{}", b'{"format": "acqstream-checksums", "version": 2}'])
def test_a_damaged_note_is_told(tmp_path: Path, content: bytes) -> None:
    container = mirror_of(tmp_path, "n5")
    (lists_of(container) / "lists.json").write_bytes(content)
    (problem,) = verify(container, "n5").problems
    assert problem.path == str(lists_of(container) / "lists.json")


def test_notes_and_names_are_read_as_they_were_written() -> None:
    note = ChecksumNote(("z", "y", "x"), ((1, 8, 8),), True, False)
    assert parse_note(note.encode(), "lists.json") == note
    for chunk in ([1, 8], [1, 8, 0], [1, 8, True], "a"):
        wrong = {**json.loads(note.encode()), "chunks": [chunk]}
        with pytest.raises(CorruptDataset, match="chunks are"):
            parse_note(json.dumps(wrong).encode(), "lists.json")
    assert list_number(list_key(7, "ab12").rpartition("/")[2]) == 7
    assert list_number("000007.sums") is None


def test_the_command_names_the_chunk_and_its_frames(tmp_path: Path) -> None:
    container = mirror_of(tmp_path, "precomputed")
    command = [sys.executable, "-m", "acqstream", "verify", str(container)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "documents are as they were stored (XXH3-64)" in done.stdout
    entry = next(entry for entry in entries_of(container) if entry.level == 0)
    flip(container / entry.key, 5)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 3, done.stdout + done.stderr
    assert entry.key in done.stdout
    assert "(time 0, channel 0, z 0 to 1) is not as it was stored" in done.stdout


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", KINDS)
def test_chunks_that_are_gone_with_their_lists_are_a_problem(tmp_path: Path, kind: str) -> None:
    made = mirror_of(tmp_path, kind)
    keys = {entry.key for entry in entries_of(made) if entry.level != DOCUMENT}
    for path in lists_of(made).glob("*.sums"):
        path.unlink()
    assert any("list 1 of checksums is missing" in problem.text for problem in verify(made, kind).problems)
    shutil.rmtree(lists_of(made))
    for key in keys:
        (made / key).unlink()
    assert any("lists of checksums" in problem.text for problem in verify(made, kind).problems)


def test_the_checksum_that_was_written_last_counts(tmp_path: Path) -> None:
    """A chunk that was stored twice, at one place or at two."""
    container = mirror_of(tmp_path, "n5")
    pages = [page for path in sorted(lists_of(container).glob("*.sums")) for page in read_pages(path.read_bytes())]
    first = next(page for page in pages if isinstance(page, ChecksumPage))
    older = ChecksumPage(first.records.copy(), first.text, is_closed=False)
    older.records["checksum"] ^= np.uint64(1)
    for has_fixed_places in (True, False):
        records = _Records(first.records["position"].shape[1])
        for page in (older, first):
            records.add(page)
        rows = records.latest(has_fixed_places=has_fixed_places)
        assert sorted(rows[:, 3].tolist()) == sorted(first.records["checksum"].tolist())
