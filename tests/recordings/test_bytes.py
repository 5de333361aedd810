"""Files of datasets, mirrors and exports are those that were recorded, byte by byte."""

from __future__ import annotations

import importlib.metadata
import itertools
import platform
import re
import shlex
import shutil
import sys
import threading
import uuid
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.cli.main import main
from tests.live.daemon_process import DaemonProcess
from tests.recordings.folder_table import folder_table
from tests.recordings.recorded_runs import RUNS, SUFFIXES, RecordedRun
from tests.recordings.recording import IS_RECORDING, check, check_keys, load
from tests.waiting import until

GOLDEN = Path(__file__).parents[1] / "golden"
ROOT_LENGTH = 160  # of the data directory's path, whatever pytest's folder is called: HDF5 files hold it
SENDERS = 8
UNFORCED = "from tests.unforced import force_nothing; force_nothing()"
identity = threading.local()  # of_run: what uuid4 gives to the thread that sends it
SEED = uuid.UUID("3d6f4a0e-8f0b-4b7a-9a55-0c6c8f1f7e21")
# Words in the arguments of mirrors and exports, and whose bytes their files hold then; "" for where none is named.
LIBRARIES = {
    **dict.fromkeys(("blosc", "zstd", "lz4", "lz4hc"), "blosc"),
    **dict.fromkeys(("gzip", "png", "zlib", "shards"), "deflate"),
    "bzip2": "python",
    "xz": "python",
    "jpeg": "pillow",
    "hdf5": "h5py",
}
DEFAULTS = {"n5": {"blosc"}, "ome-zarr": {"blosc"}, "hsds": {"blosc", "deflate"}}


pytestmark = pytest.mark.timeout_s(900)  # the first test waits for all runs


@pytest.fixture(scope="module")
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a daemon that has ended, with the runs of all tests to come."""
    home = tmp_path_factory.mktemp("bytes")
    folder = home / "data".ljust(ROOT_LENGTH - len(str(home)) - 1, "_")
    own = (item for item in request.session.items if item.path == request.path and hasattr(item, "callspec"))
    chosen = {item.callspec.params["name"] for item in own}
    names = [name for name in RUNS if name in chosen and not RUNS[name].source]
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(SENDERS) as pool:
        patch.setattr(uuid, "uuid4", lambda: identity.of_run)
        with DaemonProcess(folder, home=home, prelude=UNFORCED, memory_mb=32 * SENDERS) as daemon:
            # Many at a time: a frame is published some time after it was sent.
            for sent in [pool.submit(send, daemon.endpoint, name, RUNS[name]) for name in names]:
                sent.result()
    return folder


def versions() -> dict[str, str]:
    """Of what makes compressed bytes; those of isal depend on the processor."""
    version = importlib.metadata.version
    processor = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    features = [name for name in ("avx2", "avx512f") if name in processor]
    return {
        "blosc": ", ".join(f"{name} {version(name)}" for name in ("blosc", "numcodecs", "lz4")),
        "deflate": f"isal {version('isal')}, zlib {zlib.ZLIB_RUNTIME_VERSION}, {platform.machine()} {features}",
        "python": platform.python_version().rpartition(".")[0],
        "pillow": version("pillow"),
        "h5py": version("h5py"),
    }


def libraries(arguments: str) -> set[str]:
    words = re.findall(r"[a-z0-9-]+", arguments)
    return {LIBRARIES[word] for word in words if word in LIBRARIES} | (
        set() if "--compression" in words else DEFAULTS.get(words[0], set())
    )


def incomparable(name: str) -> list[str]:
    """Beginnings of the names of files whose bytes come from another version of a library than when recorded."""
    recorded, own = load("bytes")["libraries"], versions()
    others = {library for library in own if recorded[library] != own[library]}
    kinds = [arguments for arguments in (*RUNS[name].mirrors, *RUNS[name].exports) if libraries(arguments) & others]
    return [f"{name}{SUFFIXES[arguments.split()[0]]}" for arguments in kinds]


def image(number: int, shape: tuple[int, ...], dtype: str, bits: int | None) -> np.ndarray[Any, Any]:
    """A slope with a frame's own noise: it compresses a little."""
    values = np.arange(np.prod(shape), dtype=np.uint64)
    noise = (values + np.uint64(7919 * number)) * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(59)
    top = np.uint64(2 ** (bits or 8 * np.dtype(dtype).itemsize))
    return ((values // np.uint64(3) + noise + np.uint64(37 * number)) % top).astype(dtype).reshape(shape)


def send(endpoint: str, name: str, run: RecordedRun) -> None:
    cuts = [0, len(run.keys)] if run.resumed_at is None else [0, run.resumed_at, len(run.keys)]
    for first, end in itertools.pairwise(cuts):
        identity.of_run = uuid.uuid5(SEED, f"{name} {first}")
        producer = acqstream.create(
            name, endpoint=endpoint, mirrors=run.live, resume=first > 0, buffer_mb=8, patience_s=60, **run.sent
        )
        if run.display:
            producer.patch(display=run.display)
        for number in range(first, end):
            send_frame(producer, number, run)
        is_last = end == len(run.keys)
        producer.close(run.ends if is_last else "error", "" if run.ends == "completed" else "for the record")
        if run.live or "tiles" in run.sent:
            producer.wait_for_mirrors(timeout_s=60)


def send_frame(producer: Any, number: int, run: RecordedRun) -> None:
    """Send it and wait until it is published: commits decide how a stack is laid out, so each frame has its own."""
    key = run.keys[number]
    if key is None:
        if run.keys[number - 1] is not None:  # those after it go with it: how calls join is a matter of time
            count = sum(1 for _ in itertools.takewhile(lambda one: one is None, run.keys[number:]))
            producer.skip(count, reason="the camera missed it")
        return
    shape, dtype = tuple(run.shapes[number % len(run.shapes)]), run.dtypes[number % len(run.dtypes)]
    producer.put(
        image(number, shape, dtype, run.bits),
        key,
        meta=run.metadata_of(key),
        bits=run.bits,
        time_ns=1_790_000_000_000_000_000 + 12_345_678 * number if run.times_ns else None,
    )
    until(lambda: producer.progress.published > number, f"frame {number} is published")


def call(capsys: pytest.CaptureFixture[str], arguments: list[str], root: Path) -> str:
    """The exit code of a verb and its last line."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    out, err = capsys.readouterr()
    lines = [*out.splitlines(), *err.splitlines()] or [""]
    return f"{end.value.code or 0}: {lines[-1]}".replace(str(root), "ROOT").replace(sys.executable, "PYTHON")


@pytest.mark.parametrize("name", RUNS)
def test_files_are_those_recorded(
    data: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, path = RUNS[name], data / name
    if run.source:
        shutil.copytree(GOLDEN / run.source, path)
    one = uuid.uuid5(SEED, name)
    monkeypatch.setattr(uuid, "uuid4", lambda: one)  # HSDS makes the ids of its objects from it
    verbs = [f"mirror --to {arguments}" for arguments in run.mirrors]
    verbs += [f"export --to {arguments}" for arguments in run.exports]
    ends = {verb: call(capsys, split(verb, path), data) for verb in verbs}
    made = [one for one in sorted([path, *data.glob(f"{name}.*")]) if not (run.source and one == path)]
    files = {key: value for one in made for key, value in folder_table(one, data).items()}
    if run.unordered:
        files |= {key: "of any order" for key in files if f"{run.unordered}/" in key and "*" in key}
    others = [] if IS_RECORDING else incomparable(name)
    beginnings = tuple(f"files / {beginning}" for beginning in others)
    found = {"ends": ends, "files": files}
    check("bytes", name, found, lambda line: not (line.startswith(beginnings) and ": is '" in line))
    if others:
        pytest.skip(f"made by other versions of libraries than in the recording, not compared: {', '.join(others)}")


def split(arguments: str, path: Path) -> list[str]:
    verb, *more = (word.replace("{}", str(path)) for word in shlex.split(arguments.replace('"', '\\"')))
    return [verb, str(path), *more]


def test_versions_of_libraries_are_noted() -> None:
    if IS_RECORDING:
        check("bytes", "libraries", versions())
    check_keys("bytes", [*RUNS, "libraries"])
