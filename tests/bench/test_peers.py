"""Other writers store every frame: each read back with an independent reader."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from acqstream.bench import comparison
from acqstream.bench.comparison import PEERS, PeerPackage, frames_per_chunk
from acqstream.bench.workload import Workload

FRAMES = 70


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_CHUNK_BYTES", 3 * 2 * 32 * 48)  # three frames: the last chunk is not full


def images(workload: Workload) -> NDArray[Any]:
    pool = workload.pool()
    return np.stack([pool[number % len(pool)] for number in range(workload.frames)])


def read_tiff(folder: Path) -> NDArray[Any]:
    from tifffile import TiffFile

    with TiffFile(next(folder.rglob("*.tif"))) as file:
        return np.stack([page.asarray() for page in file.pages])


def read_zarr(folder: Path) -> NDArray[Any]:
    import tensorstore

    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(folder / "peer.zarr")}}
    content: NDArray[Any] = tensorstore.open(spec).result().read().result()
    return content


READERS = {
    "ndstorage": read_tiff,
    "tifffile": read_tiff,
    "acquire-zarr": read_zarr,
    "tensorstore": read_zarr,
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # ndstorage leaves a file open
@pytest.mark.parametrize("name", PEERS)
def test_a_peer_stores_every_frame_and_is_forced(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := PEERS[name].absent():
        pytest.skip(reason)
    forced: list[str] = []
    monkeypatch.setattr(comparison, "_sync", forced.append)
    monkeypatch.setattr(comparison, "FILES", SimpleNamespace(sync_directory=forced.append))
    workload = Workload((32, 48), "uint16", FRAMES)
    measured = comparison.write_frames(name, tmp_path, workload)
    assert measured.frames == FRAMES
    assert {Path(path) for path in forced} == {tmp_path, *tmp_path.rglob("*")}
    np.testing.assert_array_equal(READERS[name](tmp_path), images(workload))


def test_small_frames_share_chunks() -> None:
    assert frames_per_chunk(Workload((32, 48), "uint16", FRAMES)) == 3
    assert frames_per_chunk(Workload((32, 48), "uint16", 2)) == 2
    assert frames_per_chunk(Workload((512, 512), "uint16", 9)) == 1


def test_one_that_is_not_installed_says_so() -> None:
    reason = PeerPackage("some-package", "no_such_module", PEERS["tifffile"].open).absent()
    assert reason == "not measured: pip install some-package"
