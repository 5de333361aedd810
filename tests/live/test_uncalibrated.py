"""A mirror whose files state distances that nothing tells: the operator is warned, once."""

from __future__ import annotations

from pathlib import Path

import acqstream
from acqstream.client.run import Run
from tests.live.daemon_process import DaemonProcess
from tests.live.mirror_pair import mirrors_of
from tests.live.stored import image_of
from tests.waiting import until

SHAPE = (40, 60)


def codes_of(run: Run) -> list[str]:
    return [warning.code for warning in run.warnings]


def test_once_for_a_mirror_that_needs_distances(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data") as daemon:
        with acqstream.create("cells", endpoint=daemon.endpoint, mirrors=["n5"]) as run:
            for z in range(3):
                run.put(image_of(z, SHAPE), z=z)
            until(lambda: "uncalibrated" in codes_of(run), "the warning has come")
            (text,) = (warning.text for warning in run.warnings if warning.code == "uncalibrated")
            assert text.startswith("cells.n5: the distance of items along z and y and x is not known")
            for z in range(3, 6):
                run.put(image_of(z, SHAPE), z=z)
        assert codes_of(run).count("uncalibrated") == 1


def test_not_where_frames_tell_or_the_layout_needs_none(tmp_path: Path) -> None:
    plain = {"format": "n5", "layout": "array", "name": "plain"}
    with DaemonProcess(tmp_path / "data") as daemon:
        with acqstream.create("dark", endpoint=daemon.endpoint, mirrors=[plain]) as dark:
            dark.put(image_of(0, SHAPE), z=0)
        with acqstream.create("cells", endpoint=daemon.endpoint, mirrors=["n5"]) as run:
            for z in range(3):
                run.put(image_of(z, SHAPE), z=z, meta={"PixelSizeUm": 0.1, "ZPositionUm": 0.25 * z})

            def spacing() -> float | None:
                try:
                    with acqstream.open(tmp_path / "data" / "cells.n5") as ds:
                        return ds.levels[0].z_step_um
                except acqstream.DatasetError:
                    return None

            until(lambda: spacing() == 0.25, "the mirror tells the spacing while the run goes on")
        until(lambda: not mirrors_of(daemon, daemon.data / "cells"), "the mirror is complete")
        assert "uncalibrated" not in codes_of(run) + codes_of(dark)
