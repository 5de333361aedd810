"""A mirror keeps the codec that it was begun with, also where the defaults of a later version are other ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.codecs import blosc
from acqstream.mirrors.mirror_plan import folder_of
from acqstream.model.view_spec import ViewSpec
from acqstream.views.view_run import ViewRun, ViewState
from tests.log.make_frames import write_log
from tests.mirrors.mirror_cases import array_of, finish, frames_at, places_of, run_of
from tests.waiting import until

FRAMES = frames_at(places_of(("time", "z"), {"time": 6, "z": 2}), (40, 60))
SHUFFLE_FLAGS = 0b101  # in the third byte of a chunk
BYTES, BITS = 0b001, 0b100
SETTINGS: dict[str, dict[str, Any]] = {
    "n5": {"format": "n5", "layout": "array", "blocks": [2, 32, 32]},
    "n5 by name": {"format": "n5", "compression": "blosc", "blocks": [2, 32, 32]},
    "n5 with a level": {"format": "n5", "compression": {"type": "blosc", "clevel": 5}, "blocks": [2, 32, 32]},
    "ome-zarr": {"format": "ome-zarr", "chunks": [1, 32, 32], "shards": False},
    "ome-zarr by name": {"format": "ome-zarr", "compression": "blosc", "chunks": [1, 32, 32], "shards": False},
}


@pytest.fixture
def folder(tmp_path: Path, small_steps: None) -> Path:
    """A dataset, and one frame at a time for its mirrors."""
    write_log(tmp_path / "cells", FRAMES)
    return tmp_path / "cells"


def begin(folder: Path, settings: dict[str, Any]) -> ViewRun:
    return run_of(folder, settings, name=settings["format"])


def container_of(folder: Path, settings: dict[str, Any]) -> Path:
    spec = ViewSpec(settings["format"], settings, settings["format"])
    return folder_of(folder, spec).with_suffix("")


def shuffles_of(container: Path, settings: dict[str, Any]) -> dict[str, int]:
    """The shuffle in the header of each stored chunk, by path."""
    found: dict[str, int] = {}
    for path in container.rglob("*"):
        if not (path.is_file() and path.name.isdecimal()):
            continue
        content = path.read_bytes()
        begin = 4 + 4 * content[3] if settings["format"] == "n5" else 0  # the number of its dimensions
        found[str(path.relative_to(container))] = content[begin + 2] & SHUFFLE_FLAGS
    return found


def stated_shuffles(container: Path) -> set[Any]:
    """The shuffles that documents of arrays state."""
    found = set()
    for path in container.rglob("*.json"):
        document = json.loads(path.read_text())
        for codec in (document.get("compression"), *document.get("codecs", ())):
            parameters = (codec or {}).get("configuration", codec) or {}
            found |= {parameters["shuffle"]} if "shuffle" in parameters else set()
    return found


@pytest.mark.parametrize("name", SETTINGS)
def test_it_resumes_with_the_shuffle_it_was_begun_with(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    settings = SETTINGS[name]
    container = container_of(folder, settings)
    with monkeypatch.context() as earlier:
        earlier.setattr(blosc, "default_shuffle", lambda _: blosc.BYTE_SHUFFLE)
        run = begin(folder, settings)

        def has_chunks() -> bool:
            assert run.step() is not None, "the mirror is complete"
            return bool(shuffles_of(container, settings))

        until(has_chunks, "first chunks")
        run.close()  # as after SIGKILL: nothing is saved
    stored = shuffles_of(container, settings)
    stated = stated_shuffles(container)
    assert set(stored.values()) == {BYTES}
    run = finish(begin(folder, settings))
    assert (run.progress().state, run.reason) == (ViewState.COMPLETE, "")
    chunks = shuffles_of(container, settings)
    assert len(chunks) > len(stored)
    assert set(chunks.values()) == {BYTES}
    assert stated_shuffles(container) == stated == {1 if settings["format"] == "n5" else "shuffle"}
    with acqstream.open(container) as ds:
        assert np.array_equal(ds.levels[0].read().squeeze(), array_of(FRAMES).squeeze())


@pytest.mark.parametrize("name", SETTINGS)
def test_a_new_one_shuffles_bits(folder: Path, name: str) -> None:
    settings = SETTINGS[name]
    finish(begin(folder, settings))
    container = container_of(folder, settings)
    assert set(shuffles_of(container, settings).values()) == {BITS}
    assert stated_shuffles(container) == {2 if settings["format"] == "n5" else "bitshuffle"}
