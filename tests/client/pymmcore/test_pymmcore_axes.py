"""Index to axes, without a core."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("pymmcore_plus")

import useq
from pymmcore_plus.mda._generator_sequence import GeneratorMDASequence

from acqstream.client.pymmcore.axes import AxisTranslator
from acqstream.client.pymmcore.sequence_plan import acquires, plan_sequence
from acqstream.model.axes import check_axes


def axes_of(sequence, **options):
    translator = AxisTranslator(plan_sequence(sequence), **options)
    return [translator.translate(event) for event in sequence if acquires(event)]


def hand_made(*events, **options):
    translator = AxisTranslator(plan_sequence(GeneratorMDASequence()), **options)
    return [translator.translate(event) for event in events]


def position(grid_plan=None, **fields):
    return {"x": 0, "y": 0, "z": 0, "sequence": {"grid_plan": grid_plan, **fields} if grid_plan or fields else None}


ROWS = {"rows": 2, "columns": 2}
RANDOM = {"num_points": 2, "max_width": 100, "max_height": 100, "random_seed": 1, "allow_overlap": True}
SEQUENCES = {
    "all axes": {
        "time_plan": {"interval": 0, "loops": 2},
        "stage_positions": [(0, 0, 0), (1, 1, 1)],
        "channels": ["DAPI", "FITC"],
        "z_plan": {"range": 2, "step": 1},
        "grid_plan": ROWS,
    },
    "some positions have a grid": {"stage_positions": [position(), position(ROWS)], "channels": ["DAPI"]},
    "some positions have channels": {"stage_positions": [position(), position(channels=["DAPI"])]},
    "positions have other channels": {
        "channels": ["DAPI"],
        "stage_positions": [position(), position(channels=["FITC", "DAPI"])],
    },
    "random points": {"grid_plan": RANDOM},
    "rows here, random points there": {"stage_positions": [position(ROWS), position(RANDOM)]},
    "inner times replace outer ones": {
        "time_plan": {"interval": 0, "loops": 2},
        "stage_positions": [position(time_plan={"interval": 0, "loops": 3})],
    },
    "the same channel in two groups": {"channels": [{"config": "A"}, {"config": "A", "group": "Other"}]},
    "channels that are not always taken": {
        "time_plan": {"interval": 0, "loops": 4},
        "channels": ["DAPI", {"config": "FITC", "acquire_every": 2, "do_stack": False}],
        "z_plan": {"range": 2, "step": 1},
    },
    "autofocus": {
        "stage_positions": [(0, 0, 0), (1, 1, 1)],
        "autofocus_plan": {"autofocus_device_name": "AF", "autofocus_motor_offset": 1, "axes": ("p",)},
    },
    "a single image": {"channels": ["DAPI"]},
}


@pytest.mark.parametrize("fields", SEQUENCES.values(), ids=SEQUENCES.keys())
def test_every_frame_of_a_sequence_has_the_same_axes_of_one_type_and_its_own_values(fields):
    frames = axes_of(useq.MDASequence(**fields))
    assert frames
    assert len({tuple(axes) for axes in frames}) == 1
    for name in frames[0]:
        assert len({type(axes[name]) for axes in frames}) == 1, name
    assert len({tuple(axes.items()) for axes in frames}) == len(frames)
    for axes in frames:
        assert check_axes(axes) == axes


@pytest.mark.parametrize("fields", SEQUENCES.values(), ids=SEQUENCES.keys())
def test_the_number_of_frames_is_known(fields):
    sequence = useq.MDASequence(**fields)
    assert plan_sequence(sequence).frames == len(axes_of(sequence))


def test_all_axes():
    frames = axes_of(useq.MDASequence(**SEQUENCES["all axes"]))
    assert len(frames) == 2 * 2 * 2 * 3 * 4
    assert frames[0] == {"time": 0, "position": 0, "row": 0, "column": 0, "channel": "DAPI", "z": 0}
    assert frames[-1] == {"time": 1, "position": 1, "row": 1, "column": 0, "channel": "FITC", "z": 2}


def test_frames_without_channel_among_named_ones():
    frames = axes_of(useq.MDASequence(**SEQUENCES["some positions have channels"]))
    assert [axes["channel"] for axes in frames] == ["Default", "DAPI"]


def test_channel_names_hold_for_all_positions():
    plan = plan_sequence(useq.MDASequence(**SEQUENCES["positions have other channels"]))
    assert plan.channel_names == ("DAPI", "FITC")
    plan = plan_sequence(useq.MDASequence(**SEQUENCES["some positions have channels"]))
    assert set(plan.channel_names) == {"Default", "DAPI"}


def test_equal_channel_names_stay_numbers():
    sequence = useq.MDASequence(**SEQUENCES["the same channel in two groups"])
    assert axes_of(sequence) == [{"channel": 0}, {"channel": 1}]
    assert plan_sequence(sequence).channel_names == ("A", "A")


def test_points_without_rows_are_numbered():
    assert axes_of(useq.MDASequence(grid_plan=RANDOM)) == [{"grid": 0}, {"grid": 1}]
    mixed = axes_of(useq.MDASequence(**SEQUENCES["rows here, random points there"]))
    assert mixed[-1] == {"position": 1, "grid": 1}


def test_a_sequence_that_repeats_indices_gets_the_counter():
    frames = axes_of(useq.MDASequence(**SEQUENCES["inner times replace outer ones"]))
    assert [(axes["time"], axes["frame"]) for axes in frames] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]


def test_the_counter_can_be_asked_for():
    assert axes_of(useq.MDASequence(channels=["DAPI"]), counter=True) == [{"channel": "DAPI", "frame": 0}]


def test_a_long_sequence_is_not_counted():
    plan = plan_sequence(useq.MDASequence(time_plan={"interval": 0, "loops": 60_000}))
    assert plan.frames is None
    assert plan.is_unique


def test_several_cameras():
    event = useq.MDAEvent(index={"t": 3, "cam": 1})
    plan = replace(plan_sequence(useq.MDASequence(time_plan={"interval": 0, "loops": 4})), cameras=("A", "B"))
    for camera, name in (("", "B"), ("A", "A"), ("C", "C")):
        assert AxisTranslator(plan).translate(event, camera) == {"time": 3, "camera": name}
    numbered = AxisTranslator(plan, integers=True)
    assert [numbered.translate(event, camera)["camera"] for camera in ("B", "C", "A")] == [1, 2, 0]


def test_the_first_event_fixes_the_axes_of_a_list():
    frames = hand_made(
        useq.MDAEvent(index={"t": 0, "p": 0}), useq.MDAEvent(index={"t": 1}), useq.MDAEvent(index={"t": 1, "z": 4})
    )
    assert frames == [
        {"time": 0, "position": 0, "frame": 0},
        {"time": 1, "position": 0, "frame": 0},
        {"time": 1, "position": 0, "frame": 1},
    ]


def test_events_taken_from_a_sequence_keep_their_axes():
    events = list(useq.MDASequence(channels=["DAPI", "FITC"]))
    assert hand_made(*events) == [{"channel": "DAPI", "frame": 0}, {"channel": "FITC", "frame": 0}]
    assert hand_made(*events, integers=True) == [{"channel": 0, "frame": 0}, {"channel": 1, "frame": 0}]


def test_a_channel_of_a_list_is_text_throughout():
    frames = hand_made(useq.MDAEvent(index={"c": 0}, channel="DAPI"), useq.MDAEvent(index={"c": 1}), useq.MDAEvent())
    assert [axes["channel"] for axes in frames] == ["DAPI", "1", "Default"]


@pytest.mark.parametrize(
    ("key", "name"), [("well", "well"), ("frame", "frame_index"), ("time", "time_index"), ("a b", "a_b")]
)
def test_keys_of_the_users_own(key, name):
    [axes] = hand_made(useq.MDAEvent(index={key: 3}))
    assert axes == {name: 3, "frame": 0}


def test_the_declaration_of_the_axes():
    sequence = useq.MDASequence(**SEQUENCES["all axes"])
    plan = replace(plan_sequence(sequence), cameras=("A", "B"))
    sizes = {str(key): size for key, size in sequence.sizes.items()}
    assert AxisTranslator(plan).declaration(sizes) == [
        {"name": "time", "size": 2},
        {"name": "position", "size": 2},
        {"name": "row", "size": 2},
        {"name": "column", "size": 2},
        {"name": "channel", "size": 2, "labels": ["DAPI", "FITC"]},
        {"name": "z", "size": 3},
        {"name": "camera", "size": 2, "labels": ["A", "B"]},
    ]
    assert AxisTranslator(plan_sequence(GeneratorMDASequence())).declaration({}) is None
