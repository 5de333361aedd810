"""Compares acqstream over each transport with other writers: `acqstream bench`.

Other writers, the peers, are used as their users call them: each takes frames one by one and reports when it has
written all of them. Every file and folder of a peer is forced to the disk at the end, by the same code.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from acqstream.bench.child_process import run_measured, temporary_folder
from acqstream.bench.limit import measure_limit
from acqstream.bench.measurement import (
    LIMIT,
    BenchReport,
    Measurement,
    Pair,
    SituationReport,
    Table,
    UsageMeter,
    absent_row,
    machine_of,
    measured_row,
    row_report,
    versions,
)
from acqstream.bench.producer import TRANSPORTS, BenchDaemon, send, serving, transport_absent
from acqstream.bench.workload import Workload, run_workload, workload_of
from acqstream.errors import ConfigError
from acqstream.model.acquisition_spec import DEFAULT_DURABILITY_S, DurabilityMode
from acqstream.storage.platform import FILES
from acqstream.storage.platform.capabilities import sync_all

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

    return run_workload(workload, writer.put, finish)


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


DATASET = "bench"
_TOGETHER = 100  # frames of one `put_many`


@dataclass(frozen=True, slots=True)
class Row:
    """One way of writing. run writes a workload into an empty directory; absent is the reason why it cannot, or empty.

    is_extra: measured only on request.
    """

    name: str
    run: Callable[[Path, Workload, int | None], Measurement]
    absent: Callable[[], str]
    is_extra: bool = False


def _run_peer(name: str, directory: Path, workload: Workload, memory_mb: int | None) -> Measurement:
    del memory_mb  # it has no daemon
    return run_measured("peer", write_frames, workload.payload_bytes, name=name, folder=directory, workload=workload)


def _run_daemon(
    transport: str,
    directory: Path,
    workload: Workload,
    memory_mb: int | None,
    durability: DurabilityMode = DEFAULT_DURABILITY_S,
    *,
    together: int | None = None,
) -> Measurement:
    with serving(transport, directory, memory_mb) as daemon:
        meter = UsageMeter(daemon.pid)
        how = {"endpoint": daemon.endpoint, "name": DATASET, "transport": transport, "durability": durability}
        sent = run_measured("producer", send, workload.payload_bytes, workload=workload, together=together, **how)
        return replace(sent, processes={**sent.processes, "daemon": meter.cost()})


def _row(
    name: str,
    transport: str,
    durability: DurabilityMode = DEFAULT_DURABILITY_S,
    *,
    is_extra: bool = False,
    together: int | None = None,
) -> Row:
    run = partial(_run_daemon, transport, durability=durability, together=together)
    return Row(name, run, partial(transport_absent, transport), is_extra)


ROWS = {
    row.name: row
    for row in (
        *(Row(name, partial(_run_peer, name), peer.absent) for name, peer in PEERS.items()),
        *(_row(transport, transport) for transport in TRANSPORTS),
        *(_row(f"{name}-many", name, is_extra=True, together=_TOGETHER) for name in TRANSPORTS),
        _row("ipc-close", "ipc", "close", is_extra=True),
        _row("ipc-batch", "ipc", "batch", is_extra=True),
    )
}
USUAL_ROWS = tuple(row.name for row in ROWS.values() if not row.is_extra)


SITUATIONS = (((2048, 2048), "uint16"), ((256, 256), "uint16"), ((64, 64), "uint16"))
MAX_FRAMES = 250_000  # of one run: the rate of tiny frames is one of frames, and the slow writers take 300 us each
_SPARE_BYTES = 10**9  # what the benchmark leaves free at the least
_MARGIN = 1.1  # files are larger than their pixels

Observer = Callable[[str, int, int], None]
"""Called with the run that starts, how many runs are done, and how many there are."""
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSettings:
    """Settings of a benchmark. payload_bytes are pixels of one run, less if it had more than max_frames.

    daemon_memory_mb None is the daemon's own default.
    """

    directory: Path
    payload_bytes: int
    pairs: int
    rows: tuple[str, ...] = USUAL_ROWS
    situations: tuple[tuple[tuple[int, ...], str], ...] = SITUATIONS
    daemon_memory_mb: int | None = None
    max_frames: int = MAX_FRAMES


class Bench:
    """One running benchmark: its settings, the folder of its files, and the news of its steps."""

    def __init__(self, settings: BenchSettings, folder: Path, observe: Observer, steps: int) -> None:
        self.settings = settings
        self.folder = folder
        self._observe = observe
        self._steps = steps
        self._done = itertools.count()

    def tell(self, text: str) -> None:
        """The next step starts."""
        self._observe(text, next(self._done), self._steps)

    def in_turn(self, title: str, names: Sequence[str], measure: Callable[[str], Result]) -> dict[str, list[Result]]:
        """A round of all names for each pair, in one order and then in the other: the first may find an idle disk."""
        found: dict[str, list[Result]] = {name: [] for name in names}
        for turn in range(self.settings.pairs):
            for name in in_order(names, turn):
                self.tell(f"{title}: {name}")
                found[name].append(measure(name))
        return found

    @contextmanager
    def run_folder(self, name: str) -> Iterator[Path]:
        """A new folder for one run. It is deleted after the run, so that the next run does not pay for that."""
        folder = self.folder / name
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder)
            sync_all()  # a file system may tell the disk now what it can forget

    @contextmanager
    def daemon(self, transport: str, name: str) -> Iterator[BenchDaemon]:
        """A fresh daemon; its files are deleted with it."""
        with (
            self.run_folder(name) as folder,
            serving(transport, folder, self.settings.daemon_memory_mb) as daemon,
        ):
            yield daemon

    def report(self, *, situations: Sequence[SituationReport] = (), tables: Sequence[Table] = ()) -> BenchReport:
        """Combine situations and tables with the machine, the versions and the time."""
        from acqstream import __version__

        return BenchReport(
            version=__version__,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            machine=machine_of(self.settings.directory),
            versions=versions(),
            directory=str(self.settings.directory.resolve()),
            pairs=self.settings.pairs,
            situations=tuple(situations),
            tables=tuple(tables),
        )


def in_order(names: Sequence[str], turn: int) -> Sequence[str]:
    """These names, backwards in every second turn."""
    return names if turn % 2 == 0 else names[::-1]


@contextmanager
def started_bench(
    settings: BenchSettings, observe: Observer, steps: int, payload_bytes: int | None = None
) -> Iterator[Bench]:
    """A benchmark in a temporary folder in `settings.directory`, which is deleted at the end.

    payload_bytes: pixels that are there at one time at most, by default settings.payload_bytes. Raises ConfigError if
    the disk has too little space.
    """
    check_space(settings.directory, settings.payload_bytes if payload_bytes is None else payload_bytes)
    with temporary_folder("acqstream-bench-", settings.directory) as folder:
        yield Bench(settings, folder, observe, steps)


def check_space(directory: Path, payload_bytes: int) -> None:
    """Raise ConfigError unless so many bytes of pixels fit there and leave a gigabyte."""
    if not directory.is_dir():
        raise ConfigError(f"{directory} is not a directory; name an existing one with --dir")
    needed = int(payload_bytes * _MARGIN) + _SPARE_BYTES
    free = FILES.free_bytes(str(directory))
    if free < needed:
        raise ConfigError(
            f"the benchmark needs {needed / 1e9:.1f} GB in {directory}, {free / 1e9:.1f} GB are free; "
            "use --bytes or --dir"
        )


def run_benchmark(settings: BenchSettings, observe: Observer) -> BenchReport:
    """Measure each row in turn with the limit, for frames of each kind.

    Raises ConfigError if the disk has too little space or a row is unknown; the first error of a run otherwise.
    """
    unknown = [name for name in settings.rows if name not in ROWS]
    if unknown:
        raise ConfigError(f"unknown rows {unknown}; there are {list(ROWS)}")
    rows = [ROWS[name] for name in settings.rows]
    absent = {row.name: reason for row in rows if (reason := row.absent())}
    measured = [row for row in rows if row.name not in absent]
    steps = 2 * settings.pairs * len(measured) * len(settings.situations)
    with started_bench(settings, observe, steps) as bench:
        situations = []
        for shape, dtype in settings.situations:
            workload = workload_of(shape, dtype, settings.payload_bytes, settings.max_frames)
            pairs: dict[str, list[Pair]] = {row.name: [] for row in measured}
            for _ in range(settings.pairs):
                for row in measured:
                    pairs[row.name].append(_pair(bench, row, workload))
            situations.append(_situation(workload, rows, pairs, absent))
        return bench.report(situations=situations)


def _pair(bench: Bench, row: Row, workload: Workload) -> Pair:
    title = f"{'x'.join(str(side) for side in workload.shape)} {workload.dtype}"
    bench.tell(f"{title}: {LIMIT}")
    limit = measure_limit(bench.folder, workload.payload_bytes)
    bench.tell(f"{title}: {row.name}")
    with bench.run_folder(row.name) as folder:
        return Pair(limit, row.run(folder, workload, bench.settings.daemon_memory_mb))


def _situation(
    workload: Workload, rows: Sequence[Row], pairs: Mapping[str, Sequence[Pair]], absent: Mapping[str, str]
) -> SituationReport:
    peers = tuple(name for name in pairs if name in PEERS)
    everything = list(itertools.chain.from_iterable(pairs.values()))
    reports = [row_report(LIMIT, [pair.limit for pair in everything])] if everything else []
    for row in rows:
        if row.name in absent:
            reports.append(absent_row(row.name, absent[row.name]))
        else:
            beside = () if row.name in PEERS else peers
            reports.append(measured_row(row.name, pairs[row.name], {peer: pairs[peer] for peer in beside}))
    return SituationReport(
        shape=workload.shape,
        dtype=workload.dtype,
        payload_bytes=workload.payload_bytes,
        frames=workload.frames,
        peers=peers,
        rows=tuple(reports),
    )
