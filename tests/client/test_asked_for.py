"""What a call asks for is done, refused, or warned about by name: with real daemons."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.client.pycromanager.forwarding import forward
from acqstream.client.run import Run
from acqstream.model.acquisition_spec import AxisSpec
from tests.conformance.odd_metadata import ODD_METADATA, SUMMARIES, Odd
from tests.live.embedded_daemons import embedded_daemons

IMAGE = np.zeros((64, 64), "u2")
FIRST = {"PixelSizeUm": 0.65, "Objective": "10x", "StartTime": "then"}


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    with embedded_daemons(tmp_path) as daemons:
        yield daemons.data


def codes(run: Run) -> dict[str, str]:
    return {warning.code: warning.text for warning in run.warnings}


def record(name: str, data: Path, n_frames: int = 1, **options: Any) -> Run:
    with acqstream.create(name, data=data, **options) as run:
        for number in range(n_frames):
            run.put(IMAGE, time=number)
    return run


def interrupted(data: Path, *, daemon_dies: bool, **options: Any) -> None:
    """A run of 3 frames, whose producer is killed; then its daemon, too."""
    script = (
        "import acqstream, numpy, os, sys, json\n"
        "run = acqstream.create('cells', data=sys.argv[1], **json.load(sys.stdin))\n"
        "for i in range(3): run.put(numpy.zeros((64, 64), 'u2'), time=i)\n"
        "while run.progress.durable < 3: pass\n"
        "print(open(sys.argv[1] + '/.acqstream.lock').read().split()[2], flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    command = [sys.executable, "-c", script, str(data)]
    output = subprocess.run(
        command, input=json.dumps(options), stdout=subprocess.PIPE, text=True, check=False, timeout=120
    ).stdout
    if daemon_dies:
        os.kill(int(output), 9)


@pytest.mark.promise("resumed-settings")
@pytest.mark.parametrize("daemon_dies", [False, True])
def test_a_resumed_run_names_what_it_does_not_take(data: Path, *, daemon_dies: bool):
    interrupted(data, daemon_dies=daemon_dies, summary=FIRST, axes=["time"])
    asked = {"PixelSizeUm": 0.1625, "Objective": "40x", "StartTime": "now", "More": [1]}
    run = record_more(data, summary=asked, mirrors=["n5"], axes=["z", "time"], duplicates="replace")
    text = codes(run)["resume_keeps"]
    assert text.startswith(
        "resume keeps the first summary: PixelSizeUm 0.65, not 0.1625; Objective '10x', not '40x'; More none, not [1]; "
    )
    assert "axes [{'name': 'time'" in text
    assert "duplicates 'error', not 'replace'" in text
    assert "Start" not in text
    assert [(mirror.name, mirror.state, mirror.frames) for mirror in run.wait_for_mirrors(60)] == [
        ("n5", "complete", 6)
    ]
    assert acqstream.open(data / "cells").summary_metadata["Objective"] == "10x"


def record_more(data: Path, **options: Any) -> Run:
    with acqstream.create("cells", data=data, resume=True, **options) as run:
        for number in range(3, 6):
            run.put(IMAGE, time=number)
    return run


def test_a_resumed_run_that_gets_all_has_no_warning(data: Path):
    interrupted(data, daemon_dies=False, summary=FIRST, axes=["time"])
    assert not record_more(data, summary={**FIRST, "StartTime": "now"}, axes=["time"]).warnings


@pytest.mark.parametrize(("text", "warning"), [("x", ""), ("y", "resume keeps the first summary: positions ['xxx")])
def test_a_large_summary_of_a_resumed_run(data: Path, text: str, warning: str):
    interrupted(data, daemon_dies=False, summary={"a": 1, "positions": ["x" * 300_000]})
    run = record_more(data, summary={"a": 1, "positions": [text * 300_000]})
    assert list(codes(run)) == (["resume_keeps"] if warning else [])
    assert codes(run).get("resume_keeps", "").startswith(warning)


def test_nothing_to_resume_is_said(data: Path):
    with acqstream.create("gone", data=data, resume=True) as run:
        assert run.next == 0
    assert "gone" in codes(run)["nothing_to_resume"]


def test_numbers_of_deleted_takes_stay_free(data: Path):
    names = [record("cells", data, on_exists="number").name for _ in range(3)]
    (data / "cells_1").rename(data / "archived")
    (data / "cells_7.n5").mkdir()
    (data / "cells_x8").mkdir()
    assert [*names, record("cells", data, on_exists="number").name] == ["cells", "cells_1", "cells_2", "cells_8"]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("odd", [odd for odd in SUMMARIES if odd not in ODD_METADATA], ids=lambda odd: odd.name)
def test_large_summaries_are_stored(odd: Odd, data: Path):
    run = record("cells", data, summary={**odd.given(), "PixelSizeUm": 0.5}, mirrors=["n5", "ome-zarr"])
    dataset = acqstream.open(data / "cells")
    stored = {key: value for key, value in dataset.summary_metadata.items() if key in odd.expected}
    assert json.dumps(stored) == json.dumps(odd.expected)
    assert dataset.levels[0].scale[-1] == 0.5
    assert {mirror.state for mirror in run.wait_for_mirrors(60)} == {"complete"}
    for path in ("cells.n5", "cells.ome.zarr"):
        assert acqstream.open(data / path).levels[0].scale[-1] == 0.5


def test_summary_and_patches_are_merged(data: Path):
    with acqstream.create("cells", data=data, summary={"a": "x" * 400_000, "b": 1}) as run:
        run.patch(summary={"c": "y" * 2_000_000})
        run.patch(summary={"b": 2}, display={"z": "z" * 1_500_000})
        run.put(IMAGE)
    summary = acqstream.open(data / "cells").summary_metadata
    assert (len(summary["a"]), summary["b"], len(summary["c"])) == (400_000, 2, 2_000_000)
    assert not run.warnings


@pytest.mark.parametrize("summary", [{"a": "x" * (2**24 + 1)}, {"a": [[]] * 1_100_000}])
def test_a_summary_beyond_all_bounds_is_an_error_of_its_own_words(summary: dict[str, Any], data: Path):
    with pytest.raises(acqstream.ConfigError, match=r"summary.* 1677\d* bytes"):
        acqstream.create("cells", data=data, summary=summary)
    assert not (data / "cells").exists()


def test_scale_and_unit_of_axes_are_used(data: Path):
    axes: list[Any] = [AxisSpec("z", unit="um", scale=2.5), {"name": "time", "unit": "s", "scale": 3}]
    with acqstream.create("cells", data=data, axes=axes) as run:
        for number in range(4):
            run.put(IMAGE, z=number % 2, time=number // 2)
    level = acqstream.open(data / "cells").levels[0]
    assert (level.scale[:2], level.units[:2]) == ((2.5, 3.0), ("um", "s"))


@pytest.mark.parametrize(
    ("summary", "shape", "code", "text"),
    [
        ({"PixelSizeUm": "0,65", "z-step_um": 1}, (64, 64), "not_understood", "PixelSizeUm '0,65'; pass numbers"),
        ({"Interval_ms": [5], "z-step_um": "1"}, (64, 64), "not_understood", "z-step_um '1'; Interval_ms \\[5\\]"),
        ({}, (5, 64, 3), "thin_rgb", r"\(5, 64, 3\) is stored as one RGB picture of 5 x 64"),
        ({}, (64, 15, 3), "thin_rgb", "64 x 15"),
        ({"PixelSizeUm": 0}, (16, 16, 3), "", ""),
    ],
)
def test_what_is_probably_meant_otherwise_gives_a_warning(summary, shape, code, text, data: Path):
    with acqstream.create("cells", data=data, summary=summary) as run:
        run.put(np.zeros(shape, "u1"))
    assert list(codes(run)) == ([code] if code else [])
    assert not code or re.search(text, codes(run)[code])


class OnlyDLPack:
    def __init__(self, image: np.ndarray) -> None:
        self.image = image

    def __dlpack__(self, **options: Any) -> Any:
        return self.image.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.image.__dlpack_device__()


def test_errors_say_what_to_do(data: Path):
    with acqstream.create("cells", data=data) as run:
        with pytest.raises(acqstream.FrameRefused, match="convert it to a numpy array"):
            run.put(OnlyDLPack(IMAGE))
        run.put(IMAGE)
    run = acqstream.create("twice", data=data)
    with pytest.raises(acqstream.FrameRefused, match=r"is stored already; give each frame .* put\(image, time=i\)"):
        for _ in range(2):
            run.put(IMAGE)
        run.close()


def test_the_last_frame_number(data: Path):
    run = acqstream.create("cells", data=data)
    run.skip(2**48 - 3, reason="far away")
    run.put(IMAGE, time=0)
    run.put(IMAGE, time=1)
    with pytest.raises(acqstream.ProtocolError, match="frame numbers end at 281474976710655"):
        run.put(IMAGE, time=2)
    assert run.close().stored == 2


@pytest.mark.parametrize("large", [np.zeros((1024, 1024)), "x" * 2_000_000, {"a": [0.123456789] * 200_000}])
def test_large_metadata_end_no_run_of_a_hook(large: Any, data: Path):
    with acqstream.create("cells", data=data) as run:
        for time in range(2):
            forward(run)(IMAGE, {"Axes": {"time": time}, "large": large, "small": np.ones(500)}, None)
    stored = acqstream.open(data / "cells").read_metadata(time=1)
    assert (stored["large"][:8], stored["small"]) == ("left out", [1.0] * 500)
    assert "['large'] (left out" in codes(run)["metadata_as_text"]


def test_odd_metadata_end_no_run(data: Path):
    with acqstream.create("cells", data=data) as run:
        for number, odd in enumerate(ODD_METADATA):
            run.put(IMAGE, time=number, meta=odd.given())
    dataset = acqstream.open(data / "cells")
    for number, odd in enumerate(ODD_METADATA):
        stored = dataset.read_metadata(time=number)
        del stored["Axes"]
        assert json.dumps(stored) == json.dumps(odd.expected), odd.name
    assert list(codes(run)) == ["metadata_as_text", "nan_in_metadata"]
