"""Other writers, as their users call them: each takes frames one by one and reports when it has written all of them.

Every file and folder of a peer is forced to the disk at the end, by the same code.
"""

from __future__ import annotations

import importlib.util
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.bench.measurement import Measurement
from acqstream.bench.workload import Workload, run_workload
from acqstream.storage.platform import FILES

_CHUNK_BYTES = 8 * 2**20  # of tensorstore: small frames share chunks of this size, a larger frame is a chunk
_SHARD_BYTES, _SHARD_FRAMES = 128 * 2**20, 256  # whichever is reached first
_IN_FLIGHT = 4  # blocks that tensorstore may be writing


@dataclass(frozen=True, slots=True)
class PeerWriter:
    """put takes one frame and its number; finish returns when the peer has handed everything to the system."""

    put: Callable[[NDArray[Any], int], None]
    finish: Callable[[], None]


@dataclass(frozen=True, slots=True)
class PeerPackage:
    """package is what pip installs, module what Python imports; open writes below an existing folder."""

    package: str
    module: str
    open: Callable[[Path, Workload], PeerWriter]

    def absent(self) -> str:
        """The reason why it cannot be measured here; empty if it can."""
        return "" if importlib.util.find_spec(self.module) else f"not measured: pip install {self.package}"


def frames_per_chunk(workload: Workload) -> int:
    """Frames in a chunk of tensorstore's."""
    return max(1, min(workload.frames, _CHUNK_BYTES // workload.frame_bytes))


def _open_ndstorage(folder: Path, workload: Workload) -> PeerWriter:
    from ndstorage import NDTiffDataset

    del workload
    dataset = NDTiffDataset(dataset_path=str(folder), summary_metadata={}, name="peer", writable=True)

    def put(image: NDArray[Any], number: int) -> None:
        dataset.put_image({"time": number}, image, {"Axes": {"time": number}})

    def finish() -> None:
        dataset.finish()
        dataset.close()

    return PeerWriter(put, finish)


def _open_tifffile(folder: Path, workload: Workload) -> PeerWriter:
    """A page for each frame in one BigTIFF file."""
    from tifffile import TiffWriter

    del workload
    writer = TiffWriter(folder / "peer.tif", bigtiff=True)

    def put(image: NDArray[Any], number: int) -> None:
        del number
        writer.write(image, photometric="minisblack", contiguous=False, metadata=None)

    return PeerWriter(put, writer.close)


def _open_acquire_zarr(folder: Path, workload: Workload) -> PeerWriter:
    """Zarr version 3, not compressed, each frame a chunk, in shards of up to 128 MiB or 256 frames.

    In short trials on a busy machine chunks of many small frames made it three times slower.
    """
    import acquire_zarr as zarr

    together = max(1, min(_SHARD_FRAMES, _SHARD_BYTES // workload.frame_bytes))
    kinds = (zarr.DimensionType.TIME, zarr.DimensionType.SPACE, zarr.DimensionType.SPACE)
    chunk = (1, *workload.shape)
    array = zarr.ArraySettings(
        data_type=np.dtype(workload.dtype),
        dimensions=[
            zarr.Dimension(
                name=name,
                kind=kind,
                array_size_px=0 if name == "t" else side,  # 0: as many as come
                chunk_size_px=side,
                shard_size_chunks=together if name == "t" else 1,
            )
            for name, kind, side in zip("tyx", kinds, chunk, strict=True)
        ],
    )
    stream = zarr.ZarrStream(zarr.StreamSettings(store_path=str(folder / "peer.zarr"), arrays=[array]))

    def put(image: NDArray[Any], number: int) -> None:
        del number
        stream.append(image)

    return PeerWriter(put, stream.close)


def _open_tensorstore(folder: Path, workload: Workload) -> PeerWriter:
    """Zarr version 3, uncompressed, complete chunks of 8 MiB or of one frame, four at a time."""
    import tensorstore

    together = frames_per_chunk(workload)
    store = tensorstore.open(
        {
            "driver": "zarr3",
            "kvstore": {"driver": "file", "path": str(folder / "peer.zarr")},
            "context": {"file_io_sync": False},  # forced at the end, as the others
            "metadata": {
                "shape": [workload.frames, *workload.shape],
                "data_type": workload.dtype,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [together, *workload.shape]}},
                "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            },
        },
        create=True,
    ).result()
    buffers = [np.empty((together, *workload.shape), workload.dtype) for _ in range(_IN_FLIGHT + 1)]
    in_flight: deque[Any] = deque()

    def put(image: NDArray[Any], number: int) -> None:
        block, at = divmod(number, together)
        buffer = buffers[block % len(buffers)]
        buffer[at] = image
        if at + 1 == together or number + 1 == workload.frames:
            in_flight.append(store[number - at : number + 1].write(buffer[: at + 1]).commit)
        if len(in_flight) > _IN_FLIGHT:
            in_flight.popleft().result()

    def finish() -> None:
        while in_flight:
            in_flight.popleft().result()

    return PeerWriter(put, finish)


PEERS = {
    "ndstorage": PeerPackage("ndstorage", "ndstorage", _open_ndstorage),
    "tifffile": PeerPackage("tifffile", "tifffile", _open_tifffile),
    "acquire-zarr": PeerPackage("acquire-zarr", "acquire_zarr", _open_acquire_zarr),
    "tensorstore": PeerPackage("tensorstore", "tensorstore", _open_tensorstore),
}
"""By the name of their row."""


def write_frames(name: str, folder: Path, workload: Workload) -> Measurement:
    """Write the workload; the time ends when every file and folder that the peer made is on the disk."""
    writer = PEERS[name].open(folder, workload)

    def finish() -> None:
        writer.finish()
        force(folder)

    return run_workload(workload, writer.put, finish, role="producer")


def force(folder: Path) -> None:
    """fsync of every file below `folder`, of every folder there, and of itself."""
    for parent, _, files in os.walk(folder, topdown=False):
        for name in files:
            _sync(os.path.join(parent, name))
        FILES.sync_directory(parent)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
