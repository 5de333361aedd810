"""Datasets of other writers for repair to work on, and what is in them."""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ndstorage
import numpy as np
from numpy.typing import NDArray

import acqstream
from acqstream.formats.ndtiff.index_entries import parse_entries
from acqstream.storage.files.disk import LocalDisk
from tests.log.read_back import open_ndstorage

INDEX = "NDTiff.index"
Key = frozenset[tuple[str, Any]]


class HastyDisk(LocalDisk):
    """Forces nothing: for tests that repair hundreds of times."""

    def fdatasync(self, fd: int) -> None:
        return

    def sync_directory(self, path: str) -> None:
        return


def write_ndstorage(
    root: Path, axes: Sequence[Mapping[str, Any]], *, metadata: bool = True, shape: tuple[int, int] = (6, 7)
) -> Path:
    """A finished dataset of the reference writer; frame number n has image `pixels_of(n)`."""
    with contextlib.redirect_stdout(io.StringIO()):
        dataset = ndstorage.NDTiffDataset(str(root), name="acq", summary_metadata={"k": 1}, writable=True)
        dataset.initialize({"k": 1})
        readers = set()
        for number, one in enumerate(axes):
            text = {"Axes": dict(one), "BitDepth": 16} if metadata else {"n": number}
            dataset.put_image(dict(one), pixels_of(number, shape), text)
            readers.add(dataset.current_writer.reader)
        dataset.finish()
        for reader in readers:  # it forgets them
            reader.close()
        dataset.close()
    age(root)
    return next(root.iterdir())


def pixels_of(number: int, shape: tuple[int, int] = (6, 7)) -> NDArray[np.uint16]:
    return np.random.default_rng(number).integers(1, 65535, shape).astype(np.uint16)


def age(folder: Path, seconds: float = 3600.0) -> None:
    """As if nobody had written there for an hour."""
    then = time.time() - seconds
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def key_of(axes: Mapping[str, Any]) -> Key:
    return frozenset(axes.items())


def places(folder: Path) -> dict[Key, tuple[str, tuple[int, ...]]]:
    """What the index says of each key: stack file and numbers; the later entry counts."""
    content = (folder / INDEX).read_bytes()
    entries = parse_entries(content)
    assert entries.consumed == len(content)
    rows = zip(entries.axes, entries.names, entries.numbers.tolist(), strict=True)
    return {key_of(axes): (name.decode(), tuple(numbers)) for axes, name, numbers in rows}


def read_ours(folder: Path) -> dict[Key, bytes]:
    """Pixels by key, as our reader gives them."""
    with acqstream.open(folder) as dataset:
        return {key_of(key): dataset.read_frame(key).tobytes() for key in list(dataset.keys())}


def read_reference(folder: Path) -> dict[Key, bytes]:
    """Pixels by key, as the reference reader gives them."""
    with open_ndstorage(folder) as dataset:
        return {
            key_of(axes): np.asarray(dataset.read_image(**axes)).tobytes()
            for axes in dataset.get_image_coordinates_list()
        }


def contents(folder: Path, pattern: str = "*") -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob(pattern) if path.is_file()}


def signatures(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything that a dry run must leave as it was."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.stat().st_size, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }
