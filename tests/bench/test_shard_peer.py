from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acqstream.bench.measurement import Measurement
from acqstream.bench.mirror import AloneTask
from acqstream.bench.workload import Workload
from bench import shard_peer
from bench.mirror_peers import level_of
from bench.shard_peer import append_frames, write_volumes, write_zarr_frames, write_zarr_shards

FRAMES = Workload((32, 48), "uint16", 22, pool_bytes=10 * 32 * 48 * 2)
CHUNK, SHARD = (2, 16, 16), (8, 32, 48)


@pytest.mark.parametrize(
    ("write", "package", "array"),
    [
        (write_zarr_shards, "tensorstore", "peer.zarr"),
        (write_zarr_frames, "tensorstore", "peer.zarr"),
        (append_frames, "acquire_zarr", "peer.zarr"),
    ],
)
def test_peers_write_all_frames_in_the_given_shards_and_they_are_forced(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[..., Measurement],
    package: str,
    array: str,
) -> None:
    pytest.importorskip(package)
    tensorstore: Any = pytest.importorskip("tensorstore")
    forced: list[Path] = []
    monkeypatch.setattr(shard_peer, "force", forced.append)
    measured = write(tmp_path, FRAMES, CHUNK, SHARD)
    assert measured.payload_bytes == 22 * 32 * 48 * 2
    assert forced == [tmp_path]
    documents = [json.loads(path.read_text()) for path in (tmp_path / array).rglob("zarr.json")]
    (metadata,) = [document for document in documents if document["node_type"] == "array"]
    assert metadata["chunk_grid"]["configuration"]["chunk_shape"] == [*SHARD]
    assert metadata["codecs"][0]["configuration"]["chunk_shape"] == [*CHUNK]
    (folder,) = [path.parent for path in (tmp_path / array).rglob("zarr.json") if '"array"' in path.read_text()]
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(folder)}}
    stored = tensorstore.open(spec).result().read().result()
    pool = FRAMES.pool()
    # whole shards are handed out in turn: 8 of the 10 frames; the last shard has 6
    turn = 8 if write is write_zarr_shards else 10
    assert np.array_equal(stored[:22], np.stack([pool[number % turn] for number in range(22)]))


def test_a_peer_gets_the_shards_of_the_mirror() -> None:
    settings = {"format": "ome-zarr", "compression": "none", "levels": 1, "chunks": (1, 512, 512)}
    task = AloneTask(Path("cells"), Workload((1024, 700), "uint16", 512), 128, settings)
    level = level_of(task)
    assert level.axes == ("time", "z", "y", "x")
    assert (level.block_shape, level.shard_shape) == ((1, 1, 512, 512), (1, 128, 1024, 1024))


def test_tensorstore_writes_a_volume_of_one_shard_for_each_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensorstore: Any = pytest.importorskip("tensorstore")
    forced: list[Path] = []
    monkeypatch.setattr(shard_peer, "force", forced.append)
    write_volumes(tmp_path, FRAMES, 8, (1, 16, 16))
    assert forced == [tmp_path]
    pool = FRAMES.pool()
    for number in range(3):  # 22 frames: the last stack has 6
        folder = tmp_path / f"peer-{number}"
        assert len(list(folder.rglob("*.shard"))) == 1
        spec = {"driver": "neuroglancer_precomputed", "kvstore": {"driver": "file", "path": str(folder)}}
        stored = tensorstore.open(spec).result()[..., 0].T.read().result()
        assert np.array_equal(stored, np.stack(pool[: min(8, 22 - 8 * number)]))
