"""The runs behind tests/golden/acqstream: the same calls write the same bytes, whichever version executes them."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from acqstream.log.log import Log
from acqstream.log.state_file import read_state
from acqstream.model.acquisition_spec import AcquisitionSpec, AxisSpec, TileSpec
from acqstream.model.frame_header import FrameHeader, FrameRun, pixel_type_of
from acqstream.model.metadata import frame_metadata
from acqstream.storage.page_memory import PageMemory

_WAIT_S = 60.0


class GoldenRun:
    """Writes one dataset frame by frame and collects what a reader must return of it.

    Each call waits until its frames are published, so that the bytes do not depend on time.
    """

    def __init__(self, folder: Path, name: str, **spec: Any) -> None:
        self.folder = folder
        self.frames: list[dict[str, Any]] = []
        self.next = 0
        dataset_id = uuid.uuid5(uuid.NAMESPACE_URL, name).hex
        self._spec = AcquisitionSpec(dataset_id=dataset_id, name="cells", durability="close", **spec)
        self._open(is_resumed=False)

    def _open(self, *, is_resumed: bool) -> None:
        state = read_state(str(self.folder)) if is_resumed else None
        self.log = Log(self.folder, self._spec, memory=PageMemory(2**22).view, resume=state)
        self.log.wait_until_open()

    def put(
        self,
        axes: Sequence[dict[str, Any]],
        shape: Sequence[int] = (16, 24),
        dtype: str = "<u2",
        *,
        has_checksum: bool = True,
        meta: dict[str, Any] | None = None,
        times_ns: Sequence[int | None] = (),
    ) -> None:
        """One frame for each item of axes: several are packed side by side. With times, as from a producer that sends
        the checksum of the metadata too.
        """
        headers, images = [], []
        for number, keys in enumerate(axes, self.next):
            values = np.arange(np.prod(shape), dtype=np.uint64) * np.uint64(7) + np.uint64(1000 * number)
            image = values.astype(dtype).reshape(tuple(shape))
            if image.nbytes >= 2**18:
                image[:] = number  # to be small in the repository
            checksum = xxhash.xxh3_64_intdigest(image.data) if has_checksum else None
            pixel_type = pixel_type_of(image.dtype.str, tuple(shape), None)
            time_ns = times_ns[number - self.next] if times_ns else None
            text = frame_metadata(meta, keys, time_ns)
            metadata_checksum = xxhash.xxh3_64_intdigest(text) if times_ns else None
            kind = (pixel_type, shape[0], shape[1])
            headers.append(FrameHeader(number, *kind, keys, text, checksum, time_ns, b"", metadata_checksum))
            images.append(image.tobytes())
            digest = hashlib.sha256(images[-1]).hexdigest()
            time = {} if time_ns is None else {"time_ns": time_ns}
            metadata = {**(meta or {}), **time, "Axes": keys}
            frame = {"axes": keys, "dtype": str(image.dtype), "shape": list(shape), "metadata": metadata}
            self.frames.append({**frame, "sha256": digest})
        if len(headers) == 1:
            self.log.append(headers[0], images[0])
        else:
            slot = self.log.reserve_run(FrameRun.of(headers))
            assert slot is not None
            slot.fill(memoryview(b"".join(images)))
        self.next += len(headers)
        assert self.log.wait_for_published(self.next, _WAIT_S)

    def skip(self, count: int, reason: str) -> None:
        self.log.skip(self.next, count, reason)
        self.next += count
        assert self.log.wait_for_published(self.next, _WAIT_S)

    def end(self, status: Any = "completed", reason: str = "") -> None:
        self.log.begin_close(status, reason, sent=self.next if status == "completed" else None)
        assert self.log.wait_until_finished(_WAIT_S)

    def resume(self) -> None:
        self._open(is_resumed=True)

    def crash(self) -> None:
        """The files as they lie when the writer is killed."""
        alive = self.folder.with_name(self.folder.name + "-alive")
        shutil.copytree(self.folder, alive)
        self.end("canceled")
        shutil.rmtree(self.folder)
        alive.rename(self.folder)

    def expected(self) -> dict[str, Any]:
        state = json.loads((self.folder / "acqstream.json").read_text())["state"]
        return {"state": state, "next": self.next, "frames": self.frames}


def _complete(folder: Path) -> GoldenRun:
    summary = {"PixelSizeUm": 0.25, "note": "\u00b5m"}
    run = GoldenRun(folder, "complete", summary=summary, axes=(AxisSpec("time", 3), AxisSpec("channel")))
    run.put([{"time": 0, "channel": name} for name in ("DAPI", "GFP", "Cy5")], meta={"exposure_ms": 10})
    run.put([{"time": 1, "channel": "DAPI"}], has_checksum=False)
    run.skip(2, "camera timeout")
    run.put([{"time": 1, "channel": "GFP"}], (9, 11), "|u1")
    run.put([{"time": 2, "channel": "DAPI"}], (7, 5, 3), "|u1")
    run.put([{"time": 2, "channel": "GFP"}], (256, 512))  # large: on a block of its own
    run.end()
    return run


def _interrupted(folder: Path) -> GoldenRun:
    run = GoldenRun(folder, "interrupted")
    run.put([{"time": time} for time in range(3)])
    run.skip(3, "no light")
    run.put([{"time": 6}], meta={"stage_um": [1.5, -2.0]})
    run.end("interrupted", "the daemon was stopped")
    return run


def _interrupted_v2(folder: Path) -> GoldenRun:
    run = GoldenRun(folder, "interrupted_v2")
    run.put([{"z": -1}])
    run.skip(1000, "no light")
    run.put([{"z": 0}])
    run.end("interrupted", "the daemon was stopped")
    return run


def _resumed(folder: Path) -> GoldenRun:
    run = GoldenRun(folder, "resumed")
    run.put([{"time": time} for time in range(3)])
    run.end("interrupted", "the daemon was stopped")
    run.resume()
    run.skip(100, "no light")
    run.put([{"time": 103}, {"time": 104}])
    run.end()
    return run


def _timed(folder: Path) -> GoldenRun:
    """Capture times of 64 bits, also before 1970, and checksums of the metadata from the producer."""
    run = GoldenRun(folder, "interrupted_timed")
    run.put(
        [{"time": time} for time in range(4)],
        meta={"x": 0.1},
        times_ns=[1_790_000_000_123_456_789, None, -1, 2**63 - 1],
    )
    run.put([{"time": 4}], (256, 512), times_ns=[0])
    run.end("interrupted", "the daemon was stopped")
    return run


def _tiled(folder: Path) -> GoldenRun:
    run = GoldenRun(folder, "tiled", tiles=TileSpec((4, 6)), replace_duplicates=True)
    run.put([{"row": row, "column": column, "time": 0} for row in range(2) for column in range(2)])
    run.end()
    return run


def _crashed(folder: Path) -> GoldenRun:
    run = GoldenRun(folder, "crashed")
    run.put([{"time": time} for time in range(4)])
    run.skip(2, "no light")
    run.put([{"time": 6}])
    run.crash()
    return run


def _crashed_v2(folder: Path) -> GoldenRun:
    run = GoldenRun(folder, "crashed_v2")
    run.put([{"time": time} for time in range(2)])
    run.skip(40, "no light")
    run.put([{"time": 42}, {"time": 43}])
    run.crash()
    return run


def _crashed_torn(folder: Path) -> GoldenRun:
    """As a power cut leaves it: the last index entry is torn, and its journal record is complete."""
    run = GoldenRun(folder, "crashed_torn")
    run.put([{"time": time} for time in range(4)])
    run.crash()
    index = folder / "NDTiff.index"
    index.write_bytes(index.read_bytes()[:-30] + bytes(10))
    return run


GOLDEN_RUNS: dict[str, Callable[[Path], GoldenRun]] = {
    "complete": _complete,
    "interrupted": _interrupted,
    "interrupted_v2": _interrupted_v2,
    "interrupted_timed": _timed,
    "resumed": _resumed,
    "tiled": _tiled,
    "crashed": _crashed,
    "crashed_v2": _crashed_v2,
    "crashed_torn": _crashed_torn,
}


def main(target: Path, *names: str) -> None:
    """Write golden sets into `target`: those of these names, or all."""
    for name, make in ((name, GOLDEN_RUNS[name]) for name in names or GOLDEN_RUNS):
        shutil.rmtree(target / name, ignore_errors=True)
        (target / name).mkdir(parents=True)
        run = make(target / name / "data")
        (target / name / "expected.json").write_text(json.dumps(run.expected(), indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
