"""The producer: `create` opens an acquisition at a daemon and returns its `Run`."""

from __future__ import annotations

import math
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from acqstream.client.arguments import (
    RunSettings,
    axes_hint,
    checked_callback,
    checked_choice,
    checked_count,
    checked_durability,
    checked_flag,
    checked_metadata,
    checked_number,
    checked_path,
    checked_text,
    frame_hint,
    mirrors_request,
    split_summary,
    tiles_request,
)
from acqstream.client.connection import Connection
from acqstream.client.connector import SHARING, TRANSPORTS, Transport
from acqstream.client.daemon_report import RunWarning
from acqstream.client.default_endpoint import DEFAULT_ENDPOINT, find_endpoint, is_local
from acqstream.client.directory_daemon import DirectoryDaemon
from acqstream.client.frame_buffer import LocalMemory
from acqstream.client.keys import curve_keys
from acqstream.client.outbox import FrameClaims, Outbox
from acqstream.client.plain_values import MicroManagerAxes
from acqstream.client.run import Run
from acqstream.client.run_state import Progress, RunState
from acqstream.errors import AcqStreamError, ConfigError
from acqstream.model.acquisition_spec import DEFAULT_DURABILITY_S, AxisSpec, DurabilityMode
from acqstream.storage.memory_limit import check_memory, usable_memory_bytes
from acqstream.storage.waker import Waker

__all__ = ["DEFAULT_ENDPOINT", "Progress", "Run", "RunWarning", "create"]

DEFAULT_BUFFER_MB = 256.0


def create(  # noqa: PLR0913 - the names of the public interface, all but one by keyword
    name: str,
    *,
    endpoint: str | None = None,
    data: str | os.PathLike[str] | None = None,
    summary: Mapping[str, Any] | None = None,
    mirrors: Sequence[str | Mapping[str, Any]] | None = None,
    expect: int | None = None,
    axes: Sequence[AxisSpec | Mapping[str, Any] | str] | None = None,
    durability: DurabilityMode = DEFAULT_DURABILITY_S,
    patience_s: float = 10.0,
    buffer_mb: float = DEFAULT_BUFFER_MB,
    on_exists: Literal["error", "number"] = "error",
    micromanager: bool = False,
    duplicates: Literal["error", "replace"] | None = None,
    tiles: Mapping[str, Any] | None = None,
    levels: int | Literal["auto"] = "auto",
    on_error: Callable[[AcqStreamError], None] | None = None,
    frame: object = None,
    resume: bool = False,
    transport: Transport = "auto",
    server_key: str | os.PathLike[str] | None = None,
    keys: str | os.PathLike[str] | None = None,
) -> Run:
    """Open an acquisition called `name` and return the run to put frames into.

    The name may have folders of the data directory, which are made: "anna/2026-11-29/embryo" (docs/protocol.md).

    endpoint is where the daemon listens. None takes the first of these that exists: the environment variable
    ACQSTREAM_ENDPOINT, a daemon of this user, the system service, tcp://127.0.0.1:5271 (docs/configuration.md).

    data is the data directory of a daemon on this machine, in place of endpoint. If no daemon has this directory, one
    is started for it, as a process of its own that outlives this program and ends when it has been idle for a minute.
    `run.daemon_log` is its log file, in the directory. A daemon that dies during the run is started again.

    summary is the dataset's summary metadata. expect is the number of frames to come, axes their axes (names, specs or
    maps with `name`) and frame their kind (an array like them, or ((Y, X), dtype)); all three are hints. durability is
    the time after which the dataset survives a power cut: "close", a number of seconds, or "batch" (with every batch).
    patience_s bounds every wait, for an answer, for a sign of life and for space in the buffer. buffer_mb (of 1,000,000
    bytes; by default an eighth of the memory where that is less) is local memory, taken now, that keeps frames until
    they are safe. on_exists="number" appends the highest number in use plus one. duplicates="replace" lets a frame with
    the same axes replace an earlier one; else ("error", the default but for tiles) it is refused. mirrors are copies
    that are kept beside the dataset: names of formats ("n5"), or maps with
    "format" and its options, such as {"format": "n5", "compression": "gzip", "blocks": [64, 128, 128]}. None takes the
    mirrors of the daemon's configuration. micromanager=True gives integer axes, for Micro-Manager Studio; channels
    given by name are looked up in summary["ChNames"]. resume=True continues the dataset of this name that was
    interrupted or ended with an error, or starts one if none exists. `run.next` is the first frame number it needs;
    `run.is_stored(time=0)` and `run.stored` report the frames that need not come again.

    tiles={"overlap": (y, x)} declares that frames are tiles of larger images, with this overlap of neighbours in
    pixels. Every frame then has the axes `row` and `column`, integers. levels is the number of lower resolution levels
    to make of them, "auto" until one tile remains. "wait_s" in tiles is how long a tile of a lower level waits for
    missing tiles, by default until the end.

    transport is the way of frames to the daemon. "auto" takes the fastest one available, which for a daemon on the same
    machine is memory that it shares with this program, then "ipc", then "tcp". Each can be required; "shm" is the
    shared memory, in the local buffer. `run.transport` is the one in use, `run.transport_why` the reason. If "shm" is
    required and lost during the run, `run.warnings` reports it.

    A daemon on another machine requires keys. server_key is its public key, a file or the text itself, keys the secret
    key file of this client; without them ACQSTREAM_SERVER_KEY and ACQSTREAM_KEYS apply. Wrong keys get no answer.

    on_error is called once with the run's first error, from the run's own thread, at once and not with the next `put`;
    it must not wait.

    Raises DaemonUnavailable when no daemon answers within patience_s, or cannot be started; DatasetExists, DiskFull or
    AcquisitionRefused when it refuses, ConfigError for invalid arguments; then nothing was created. A daemon that was
    asked, and has not opened the acquisition within patience_s, is DaemonUnavailable too, with a text for this case; it
    may still create a dataset without frames.
    """
    patience_s = checked_number("patience_s", patience_s, "a positive number of seconds")
    capacity = _buffer_bytes(buffer_mb)
    name = checked_text("name", name, "the name of a dataset")
    transport = checked_choice("transport", transport, TRANSPORTS)
    directory = _directory_daemon(data, endpoint, transport)
    checked_callback("on_error", on_error)
    summary_fields, replaced = checked_metadata("summary", summary)
    first_entries, others = split_summary(summary_fields)
    request = {
        "name": name,
        "summary": first_entries,
        "frame": frame_hint(frame),
        "axes": axes_hint(axes),
        "expect": checked_count("expect", expect),
        "mirrors": mirrors_request(mirrors),
        "durability": checked_durability(durability),
        "duplicates": checked_choice("duplicates", duplicates, (None, "error", "replace")),
        "tiles": tiles_request(tiles, levels),
        "on_exists": checked_choice("on_exists", on_exists, ("error", "number")),
        "resume": checked_flag("resume", resume),
    }
    integer_axes = MicroManagerAxes(summary_fields) if checked_flag("micromanager", micromanager) else None
    locate = directory.locate if directory is not None else partial(find_endpoint, transport)
    if directory is not None:  # started after all checks of arguments
        found = directory.wait(patience_s)
    else:
        found = _checked_endpoint(locate() if endpoint is None else endpoint)
    settings = RunSettings(
        endpoint=found,
        transport=transport,
        name=name,
        dataset_id=uuid.uuid4().hex,
        request=request,
        patience_s=patience_s,
        on_error=on_error,
        keys=curve_keys(found, checked_path("server_key", server_key), checked_path("keys", keys)),
        locate=locate if endpoint is None else None,
        relocates=directory is not None,
        release=directory.release if directory is not None else bool,
        log=directory.log if directory is not None else "",
        log_advice=directory.log_advice if directory is not None else str,
    )
    memory = LocalMemory(capacity, shared=transport in SHARING and is_local(found))
    outbox = Outbox(capacity, FrameClaims(memory.claim_words))
    waker = Waker()
    state = RunState(settings, outbox, time.monotonic(), waker.wake)
    run = Run(Connection(state, memory, waker), memory, integer_axes)
    run.start()
    if others:
        state.queue(state.patches.add_values, "summary", others)  # before the first frame, which is not put yet
    if replaced:
        run.warn_of_changes(replaced, "the summary")
    return run


def _directory_daemon(data: object, endpoint: str | None, transport: str) -> DirectoryDaemon | None:
    path = checked_path("data", data)
    if path is None:
        return None
    if not path:
        raise ConfigError("data='' must be the path of a directory")
    if endpoint is not None:
        raise ConfigError(f"data={path!r} and endpoint={endpoint!r} both name a daemon; give one of them")
    return DirectoryDaemon(Path(path), transport)


def _buffer_bytes(buffer_mb: object) -> int:
    """The local buffer in bytes; by default an eighth of the memory where that is less. Raises ConfigError."""
    expected = "a positive number of megabytes below 1,000,000"
    size = math.ceil(checked_number("buffer_mb", buffer_mb, expected, below=1e6) * 1_000_000 / 4096) * 4096
    if buffer_mb == DEFAULT_BUFFER_MB:
        return min(size, usable_memory_bytes() // 8 // 4096 * 4096)
    check_memory("buffer_mb of create", size)
    return size


def _checked_endpoint(endpoint: object) -> str:
    text = checked_text("endpoint", endpoint, "an endpoint such as tcp://127.0.0.1:5271")
    try:
        urlsplit(text)
    except ValueError as error:  # brackets that do not match
        raise ConfigError(f"endpoint={text!r:.80} is not an endpoint: {error}") from error
    return text
