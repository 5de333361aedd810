"""The example of docs/smart-microscopy.md: a process asks for images, and the acquisition takes them."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import acqstream
from tests.live.embedded_daemons import EmbeddedDaemons

PROGRAM = Path(__file__).parents[3] / "docs" / "smart_microscopy.py"


def test_spots_are_counted():
    image = np.full((40, 50), 100, np.uint16)
    image[::2] += 3  # a background
    for y, x in ((5, 5), (20, 44), (33, 10)):
        image[y - 1 : y + 2, x - 1 : x + 2] = 900
        image[y, x] = 1000
    assert runpy.run_path(str(PROGRAM))["count_spots"](image) == 3


@pytest.mark.slow
@pytest.mark.timeout_s(150)
def test_frames_are_answered_by_events_in_the_same_dataset(one_core, tmp_path):
    _, folder = one_core
    daemons = EmbeddedDaemons(tmp_path)
    try:
        command = [sys.executable, str(PROGRAM), "--data", str(daemons.data), "--surveys", "4", "--interval", "3"]
        command += ["--property", "Camera", "Mode", "Noise"]
        environment = {**daemons.environment, "MICROMANAGER_PATH": folder, "PYTHONPATH": str(PROGRAM.parents[1])}
        ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=140, check=False)
        assert ended.returncode == 0, ended.stderr
        with acqstream.open(daemons.data / "smart") as dataset:
            keys = [dict(key) for key in dataset.keys()]  # noqa: SIM118
            answers = [key["time"] for key in keys if key["frame"]]
            assert [key["time"] for key in keys if not key["frame"]] == [0, 1, 2, 3]
            told = [int(time) for time in re.findall(r"^time (\d+): ", ended.stdout, re.MULTILINE)]
            assert answers == told != []
            for time in answers:
                survey, answer = (dataset.read_metadata(time=time, frame=frame) for frame in (0, 1))
                assert answer["Exposure-ms"] == 5 * survey["Exposure-ms"]
                assert answer["mda_event"]["metadata"]["spots"] >= 3
        assert re.search(
            rf"^{len(answers) - (0 in answers)} events, [0-9.]+ ms from put to event", ended.stdout, re.MULTILINE
        )
    finally:
        daemons.end()
