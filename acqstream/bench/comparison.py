"""Compares acqstream over each transport with other writers: `acqstream bench`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from acqstream.bench.child_process import run_measured
from acqstream.bench.daemon import TRANSPORTS, serving, transport_absent
from acqstream.bench.interruption import temporary_folder
from acqstream.bench.limit import measure_limit
from acqstream.bench.measurement import Measurement, UsageMeter
from acqstream.bench.peers import PEERS
from acqstream.bench.report import (
    LIMIT,
    BenchReport,
    Pair,
    RowReport,
    SituationReport,
    Table,
    absent_row,
    limit_row,
    machine_of,
    measured_row,
    versions,
)
from acqstream.bench.workload import Workload, workload_of
from acqstream.errors import ConfigError
from acqstream.model.acquisition_spec import DEFAULT_DURABILITY_S, DurabilityMode
from acqstream.storage.platform import FILES
from acqstream.storage.platform.capabilities import sync_all

PEER = "ndstorage"
DATASET = "bench"


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
    return run_measured("peer", workload.payload_bytes, name=name, folder=directory, workload=workload)


def _run_daemon(
    transport: str,
    directory: Path,
    workload: Workload,
    memory_mb: int | None,
    durability: DurabilityMode = DEFAULT_DURABILITY_S,
) -> Measurement:
    with serving(transport, directory, memory_mb) as daemon:
        meter = UsageMeter(daemon.pid)
        how = {"endpoint": daemon.endpoint, "name": DATASET, "transport": transport, "durability": durability}
        sent = run_measured("producer", workload.payload_bytes, workload=workload, **how)
        return replace(sent, processes={**sent.processes, "daemon": meter.cost()})


def _usual(transport: str) -> Row:
    return Row(transport, partial(_run_daemon, transport), partial(transport_absent, transport))


def _forced(durability: DurabilityMode) -> Row:
    run = partial(_run_daemon, "ipc", durability=durability)
    return Row(f"ipc-{durability}", run, partial(transport_absent, "ipc"), is_extra=True)


ROWS = {
    row.name: row
    for row in (
        *(Row(name, partial(_run_peer, name), peer.absent) for name, peer in PEERS.items()),
        *(_usual(transport) for transport in TRANSPORTS),
        *(_forced(durability) for durability in ("close", "batch")),
    )
}
USUAL_ROWS = tuple(row.name for row in ROWS.values() if not row.is_extra)


SITUATIONS = (((2048, 2048), "uint16"), ((256, 256), "uint16"), ((64, 64), "uint16"))
MAX_FRAMES = 250_000  # of one run: the rate of tiny frames is one of frames, and the slow writers take 300 us each
_SPARE_BYTES = 10**9  # what the benchmark leaves free at the least
_MARGIN = 1.1  # files are larger than their pixels

Observer = Callable[[str, int, int], None]
"""Told what runs now, how many runs are done, and how many there are."""


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


def run_benchmark(settings: BenchSettings, observe: Observer) -> BenchReport:
    """Run everything below a temporary folder in `settings.directory`; it is deleted at the end.

    Raises ConfigError if the disk has too little space or a row is unknown; the first error of a run otherwise.
    """
    unknown = [name for name in settings.rows if name not in ROWS]
    if unknown:
        raise ConfigError(f"unknown rows {unknown}; there are {list(ROWS)}")
    with bench_folder(settings) as folder:
        run = _Run(settings, folder, observe)
        situations = tuple(run.situation(shape, dtype) for shape, dtype in settings.situations)
    return bench_report(settings, situations=situations)


@contextmanager
def bench_folder(settings: BenchSettings, payload_bytes: int | None = None) -> Iterator[Path]:
    """A new folder for so many bytes of pixels, default settings.payload_bytes; it is deleted whatever happens.

    Raises ConfigError if the disk has too little space.
    """
    check_space(settings.directory, settings.payload_bytes if payload_bytes is None else payload_bytes)
    with temporary_folder("acqstream-bench-", settings.directory) as folder:
        yield folder


@contextmanager
def run_folder(folder: Path, name: str) -> Iterator[Path]:
    """A new folder for one run. It is deleted after the run, so that the next run does not pay for that."""
    place = folder / name
    place.mkdir()
    try:
        yield place
    finally:
        shutil.rmtree(place)
        sync_all()  # a file system may tell the disk now what it can forget


def bench_report(
    settings: BenchSettings, *, situations: Sequence[SituationReport] = (), tables: Sequence[Table] = ()
) -> BenchReport:
    """Combine situations and tables with the machine, the versions and the time."""
    from acqstream import __version__

    return BenchReport(
        version=__version__,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine_of(settings.directory),
        versions=versions(),
        directory=str(settings.directory.resolve()),
        pairs=settings.pairs,
        situations=tuple(situations),
        tables=tuple(tables),
    )


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


class _Run:
    """One running benchmark."""

    def __init__(self, settings: BenchSettings, folder: Path, observe: Observer) -> None:
        self._settings = settings
        self._folder = folder
        self._observe = observe
        self._rows = [ROWS[name] for name in settings.rows]
        self._absent = {row.name: reason for row in self._rows if (reason := row.absent())}
        self._present = [row for row in self._rows if row.name not in self._absent]
        self._peers = tuple(row.name for row in self._present if row.name in PEERS)
        self._total = 2 * settings.pairs * len(self._present) * len(settings.situations)
        self._done = 0

    def situation(self, shape: tuple[int, ...], dtype: str) -> SituationReport:
        workload = workload_of(shape, dtype, self._settings.payload_bytes, self._settings.max_frames)
        pairs: dict[str, list[Pair]] = {row.name: [] for row in self._present}
        for _ in range(self._settings.pairs):
            for row in self._present:
                pairs[row.name].append(self._pair(row, workload))
        return SituationReport(
            shape=shape,
            dtype=dtype,
            payload_bytes=workload.payload_bytes,
            frames=workload.frames,
            peers=self._peers,
            rows=tuple(self._reports(pairs)),
        )

    def _pair(self, row: Row, workload: Workload) -> Pair:
        title = f"{'x'.join(str(side) for side in workload.shape)} {workload.dtype}"
        self._tell(f"{title}: {LIMIT}")
        limit = measure_limit(self._folder, workload.payload_bytes)
        self._tell(f"{title}: {row.name}")
        with run_folder(self._folder, row.name) as place:
            return Pair(limit, row.run(place, workload, self._settings.daemon_memory_mb))

    def _reports(self, pairs: dict[str, list[Pair]]) -> Sequence[RowReport]:
        everything = [pair for row in pairs.values() for pair in row]
        reports = [limit_row(everything)] if everything else []
        for row in self._rows:
            if row.name in self._absent:
                reports.append(absent_row(row.name, self._absent[row.name]))
            else:
                peers = () if row.name in PEERS else self._peers
                reports.append(measured_row(row.name, pairs[row.name], {peer: pairs[peer] for peer in peers}))
        return reports

    def _tell(self, text: str) -> None:
        self._observe(text, self._done, self._total)
        self._done += 1
