"""Raw mirrors on disks without holes, whose files take their full length: refused with the number, and forecast."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acqstream.errors import ConfigError
from acqstream.views.view_run import ViewState
from tests.faults.loop_disk import LoopDisk, why_not
from tests.log.make_frames import start_log, write_log
from tests.mirrors.mirror_cases import declared, finish, frames_at, places_of, run_of
from tests.waiting import until

MIB = 2**20
PLACES = places_of(("z",), {"z": 8})
FRAMES = frames_at(PLACES, (512, 512))


@pytest.fixture(params=["exfat", "vfat"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if why := why_not(request.param):
        pytest.skip(why)
    with LoopDisk(request.param, tmp_path / "image", tmp_path / "disk", 128 * MIB) as loop:
        yield loop.place


@pytest.mark.promise("free-space")
@pytest.mark.parametrize(
    ("settings", "fits"),
    [
        ({"format": "wkw"}, True),
        ({"format": "wkw", "cube": 128}, True),  # 16 of 4 MiB
        ({"format": "wkw", "cube": 256}, False),  # 4 of 32 MiB
        ({"format": "wkw", "cube": 512}, False),  # one of 256 MiB
        ({"format": "wkw", "cube": 256, "compression": "lz4"}, True),
    ],
)
def test_a_mirror_that_cannot_fit_is_refused(disk: Path, settings: dict[str, object], *, fits: bool) -> None:
    write_log(disk / "cells", FRAMES, axes=declared(("z",), {"z": 8}))
    run = run_of(disk / "cells", settings, "mirror")
    if fits:
        assert finish(run).progress().state is ViewState.COMPLETE
        return
    with pytest.raises(ConfigError, match=r"has no holes.* bytes more for .* are free\. Ask for smaller cubes"):
        finish(run)
    assert run.progress().state is ViewState.FAILED
    assert not [*disk.rglob("x*.wkw")]


def test_the_forecast_counts_files_in_full_length(disk: Path) -> None:
    settings = {"format": "wkw", "cube": 128}
    with start_log(disk / "cells", axes=declared(("z",), {"z": 8})) as log:
        run = run_of(disk / "cells", settings, "wkw")
        for frame in FRAMES:
            log.append(frame.header, frame.image)
        container = disk / "cells.wkw"
        until(lambda: run.step() is not None and len([*container.rglob("x*.wkw")]) == 16, "the cubes are stored")
        n_bytes = 8 * run.progress().bytes_per_frame
        taken = sum(path.stat().st_size for path in container.rglob("x*.wkw"))
        assert taken > 64 * MIB
        assert n_bytes >= 64 * MIB
        run.close()
