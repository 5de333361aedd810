from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acqstream.model.receipt import MissingFrames, Receipt
from acqstream.simulate import camera
from tests.command import command


class Cameras:
    """Stands in for `run_cameras`: remembers the plans, makes up results."""

    def __init__(self, receipt: Receipt) -> None:
        self.receipt = receipt
        self.plans: list[Any] = []

    def __call__(self, plans: list[Any], progress: object = None) -> list[Any]:
        self.plans = plans
        return [
            camera.CameraResult(name=plan.name, receipt=self.receipt, seconds=2.0, sent=plan.frames, late_frames=0)
            for plan in plans
        ]


GOOD = Receipt(dataset_id="0", path="/data/cells", status="completed", sent=12, stored=12, payload_bytes=12_000_000)
BAD = Receipt(
    dataset_id="0",
    path="/data/cells",
    status="completed",
    sent=12,
    stored=10,
    missing=(MissingFrames(3, 2, "never arrived"),),
)


def simulate(monkeypatch: pytest.MonkeyPatch, receipt: Receipt, *options: str) -> tuple[int, list[Any]]:
    cameras = Cameras(receipt)
    monkeypatch.setattr(camera, "run_cameras", cameras)
    return command("simulate", *options), cameras.plans


def test_options_become_a_plan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    options = "--name cells --frames 12 --shape 20,30,3 --dtype uint8 --fps 50 --axes time=6,channel=A|B --mirror n5"
    code, plans = simulate(monkeypatch, GOOD, *options.split(), "--endpoint", "tcp://127.0.0.1:7")
    assert code == 0
    (plan,) = plans
    assert (plan.name, plan.frames, plan.shape, plan.dtype, plan.fps) == ("cells", 12, (20, 30, 3), "uint8", 50.0)
    assert plan.axes.at(3) == {"time": 1, "channel": "B"}
    assert (plan.mirrors, plan.endpoint, plan.number_if_taken) == (("n5",), "tcp://127.0.0.1:7", False)
    out = capsys.readouterr().out
    assert "cells: complete; 12 of 12 frames stored, 12 MB in 2.00 s (6 MB/s)" in out
    assert "/data/cells" in out


def test_frames_default_to_what_the_axes_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    _, plans = simulate(monkeypatch, GOOD, "--axes", "time=3,z=4", "--producers", "2")
    assert [(plan.name, plan.frames) for plan in plans] == [("simulated-1", 12), ("simulated-2", 12)]
    assert plans[0].number_if_taken


def test_missing_frames_end_with_3(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = simulate(monkeypatch, BAD, "--frames", "12")
    assert code == 3
    out = capsys.readouterr().out
    assert "incomplete; 2 frames missing: never arrived" in out
    assert "missing: 3 to 4: never arrived" in out


def test_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(monkeypatch, BAD, "--frames", "12", "--json")
    (document,) = json.loads(capsys.readouterr().out)
    assert document["complete"] is False
    assert document["receipt"]["missing"] == [{"first": 3, "count": 2, "reason": "never arrived"}]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--shape", "12"], "(Y, X)"),
        (["--shape", "a,b"], "must be Y,X"),
        (["--shape", "8,8,3"], "uint8"),
        (["--bits", "9"], "significant bits"),
        (["--axes", "time=2,z"], "needs a size"),
        (["--axes", "time=2"], "the axes hold 2"),
        (["--dtype", "float32"], "float32"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], options: list[str], complaint: str) -> None:
    assert command("simulate", "--frames", "12", *options) == 2
    assert complaint in " ".join(capsys.readouterr().err.split())


def test_asks_for_a_number_of_frames(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("simulate") == 2
    assert "pass --frames" in capsys.readouterr().err


def test_tiles_become_a_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    options = "--tiles 2x3 --overlap 4,6 --snake --levels 0 --shape 20,30 --axes time=2,channel=A|B"
    _, (plan,) = simulate(monkeypatch, GOOD, *options.split())
    assert (plan.tiles.rows, plan.tiles.columns, plan.tiles.overlap, plan.tiles.snake) == (2, 3, (4, 6), True)
    assert (plan.frames, plan.levels) == (24, 0)
    _, (plan,) = simulate(monkeypatch, GOOD, "--tiles", "2x3")
    assert (plan.frames, plan.levels, plan.tiles.overlap) == (6, None, (0, 0))


def test_cells_are_the_default_and_noise_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    _, (plan,) = simulate(monkeypatch, GOOD, "--frames", "2")
    assert (plan.pattern, plan.is_numbered, plan.data) == ("scene", False, None)
    _, (plan,) = simulate(monkeypatch, GOOD, "--frames", "2", "--pattern", "noise", "--numbered", "--data", "/d")
    assert (plan.pattern, plan.is_numbered, plan.data, plan.endpoint) == ("noise", True, Path("/d"), None)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--tiles 2x3 --overlap 1,0 --numbered", "would differ"),
        ("--frames 3 --data /d --endpoint tcp://127.0.0.1:1", "not both"),
        ("--tiles 2", "ROWSxCOLUMNS"),
        ("--tiles 2x3 --overlap 512,0", "less than the frame"),
        ("--tiles 2x3 --axes time=1 --frames 7", "hold 6"),
        ("--frames 3 --levels 2", "only tiles"),
        ("--tiles 2x3 --levels 17", "--levels"),
    ],
)
def test_scans_that_cannot_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: str, text: str
) -> None:
    code, plans = simulate(monkeypatch, GOOD, *options.split())
    assert (code, plans) == (2, [])
    assert text in capsys.readouterr().err
