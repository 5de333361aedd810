"""Metadata of frames and runs, without a core."""

from __future__ import annotations

import enum
import json

import numpy as np
import pytest

pytest.importorskip("pymmcore_plus")

import useq
from pymmcore_plus.mda._generator_sequence import GeneratorMDASequence

from acqstream.client.plain_values import plain_metadata
from acqstream.client.pymmcore.run_sink import frame_metadata, run_summary
from acqstream.client.pymmcore.sequence_plan import plan_sequence


class Colour(enum.Enum):
    RED = "red"


def test_values_of_useq():
    given = {"where": useq.Position(x=1, name="A1"), "index": {useq.Axis.TIME: (1, {2})}}
    assert plain_metadata(given)[0] == {"where": {"x": 1.0, "name": "A1"}, "index": {"t": [1, [2]]}}


def frame(event, **meta):
    return plain_metadata(
        frame_metadata(event, {"format": "frame-dict", "version": "1.0", "mda_event": event, **meta}, 7.0)
    )[0]


def test_a_frame_carries_what_viewers_look_for_and_not_the_sequence():
    sequence = useq.MDASequence(channels=["DAPI"], stage_positions=[{"x": 1, "y": 2, "z": 3, "name": "A1"}] * 50)
    event = next(iter(sequence))
    event.metadata["runner_t0"] = 12.0
    event.metadata["operator"] = "me"
    stored = frame(
        event,
        pixel_size_um=0.5,
        camera_device="Camera",
        exposure_ms=10.0,
        runner_time_ms=99.0,
        images_remaining_in_buffer=4,
        position={"x": 1.5, "y": 2.5},
        camera_metadata={"ImageNumber": "1"},
    )
    assert stored["ElapsedTime-ms"] == stored["runner_time_ms"] == 99.0
    assert (stored["Channel"], stored["Camera"], stored["PositionName"]) == ("DAPI", "Camera", "A1")
    assert (stored["XPositionUm"], stored["YPositionUm"], stored["ZPositionUm"]) == (1.5, 2.5, 3.0)
    assert (stored["Exposure-ms"], stored["PixelSizeUm"], stored["images_remaining_in_buffer"]) == (10.0, 0.5, 4)
    assert stored["mda_event"]["index"] == {"p": 0, "c": 0}
    assert stored["mda_event"]["channel"] == {"config": "DAPI", "group": "Channel"}
    assert stored["mda_event"]["metadata"] == {"operator": "me"}
    assert "sequence" not in stored["mda_event"]
    assert len(json.dumps(stored)) < 1000


def test_the_summary_has_the_names_of_positions():
    plate = useq.WellPlatePlan(
        plate="96-well",
        a1_center_xy=(0, 0),
        selected_wells=([0, 1], [0, 2]),
        well_points_plan=useq.GridRowsColumns(rows=1, columns=2),
    )
    stored = summary(useq.MDASequence(stage_positions=plate))
    assert stored["PositionNames"] == ["A1_0000", "A1_0001", "B3_0000", "B3_0001"]
    assert stored["mda_sequence"]["stage_positions"]["plate"]["rows"] == 8
    unnamed = useq.MDASequence(stage_positions=[{"x": 1, "name": "A1"}, {"x": 2}])
    assert "PositionNames" not in summary(unnamed)


def test_a_bare_frame():
    stored = frame(useq.MDAEvent())
    assert stored == {"runner_time_ms": 7.0, "ElapsedTime-ms": 7.0, "mda_event": {}}


def test_the_image_for_a_light_modulator_is_no_metadata():
    event = useq.MDAEvent(slm_image=np.zeros((4, 4)), exposure=3)
    assert frame(event)["mda_event"] == {"exposure": 3}


def summary(sequence, **meta):
    return plain_metadata(run_summary("cells", sequence, meta, plan_sequence(sequence)))[0]


def test_the_summary_of_a_sequence():
    sequence = useq.MDASequence(
        channels=["DAPI", "FITC"],
        z_plan={"range": 2, "step": 0.5},
        time_plan={"interval": 1.5, "loops": 3},
        metadata={"who": Colour.RED},
    )
    stored = summary(
        sequence,
        datetime="2026-11-21T03:50:19+00:00",
        image_infos=({"pixel_size_um": 0.65},),
        mda_sequence=sequence,
    )
    assert stored["ChNames"] == ["DAPI", "FITC"]
    assert (stored["z-step_um"], stored["Interval_ms"], stored["PixelSizeUm"]) == (0.5, 1500.0, 0.65)
    assert (stored["Prefix"], stored["StartTime"]) == ("cells", "2026-11-21T03:50:19+00:00")
    assert stored["mda_sequence"]["axis_order"] == list(sequence.axis_order)
    assert stored["mda_sequence"]["metadata"] == {"who": "red"}
    restored = {key: value for key, value in stored["mda_sequence"].items() if key != "uid"}
    assert list(useq.MDASequence(**restored).used_axes) == list(sequence.used_axes)
    json.dumps(stored)


def even(interval, loops=3):
    return {"interval": interval, "loops": loops}


def at_places(*sequences):
    return [{"x": 0, "y": 0, "sequence": sequence} for sequence in sequences]


@pytest.mark.parametrize(
    ("sequence", "interval_ms"),
    [
        ({"time_plan": even(2)}, 2000.0),
        ({"time_plan": {"duration": 4, "loops": 3}}, 2000.0),
        ({"time_plan": even(1, loops=1)}, None),
        ({"time_plan": [even(2), even(5)]}, None),
        ({"time_plan": [even(2), even(2)]}, 2000.0),
        ({"time_plan": [even(9, loops=1), even(2)]}, 2000.0),
        ({"stage_positions": at_places({"time_plan": even(2)}, {"time_plan": even(5)})}, None),
        ({"time_plan": even(2), "stage_positions": at_places({"time_plan": even(5)}, {})}, None),
    ],
)
def test_an_interval_is_sent_if_the_plan_has_one(sequence, interval_ms):
    assert summary(useq.MDASequence(**sequence)).get("Interval_ms") == interval_ms


@pytest.mark.parametrize(
    ("steps", "step_um"), [((1, None), 1.0), ((1, 1), 1.0), ((1, 2), None), ((None, 2), 2.0), ((None, None), None)]
)
def test_a_distance_of_planes_is_sent_if_the_plan_has_one(steps, step_um):
    outer, inner = ({} if step is None else {"z_plan": {"range": 4, "step": step}} for step in steps)
    sequence = useq.MDASequence(**outer, stage_positions=at_places(inner or None))
    assert summary(sequence).get("z-step_um") == step_um


def test_a_list_of_events_has_no_sequence_in_its_summary():
    stored = summary(GeneratorMDASequence())
    assert stored.keys() == {"Prefix", "StartTime"}


def test_a_sequence_of_many_positions_is_in_the_summary():
    positions = [{"x": float(i), "y": 0.123456789, "z": 0.1, "name": "x" * 60} for i in range(6000)]
    stored = summary(useq.MDASequence(stage_positions=positions))
    assert len(stored["mda_sequence"]["stage_positions"]) == len(stored["PositionNames"]) == 6000
