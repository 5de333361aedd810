"""Which events of a resumed acquisition are left, and what the skipped ones leave to the next."""

from __future__ import annotations

import numpy as np

from acqstream.client.pycromanager import PendingEvents


class Resumed:
    """Stands for a run with these frames stored."""

    def __init__(self, *times):
        self.stored = [{"time": time} for time in times]


def at(time, **more):
    return {"axes": {"time": time}, **more}


def test_events_lists_and_generators():
    pending = PendingEvents(Resumed(0, 2))
    assert pending(at(0)) == []
    assert pending(at(1)) == [at(1)]
    assert pending([at(time) for time in range(4)]) == [at(1), at(3)]
    assert list(pending(at(time) for time in range(4))) == [at(1), at(3)]
    assert list(pending([at(time), at(time + 1)] for time in (0, 2))) == [[at(1)], [at(3)]]
    assert pending.skipped == 7


def test_without_stored_frames_events_are_as_they_came():
    event = at(0, min_start_time=5)
    assert PendingEvents(Resumed())([event])[0] is event


def test_settings_of_skipped_events_are_handed_on_once():
    first = at(0, x=1, y=2, z=3, config_group=["Channel", "DAPI"], exposure=4, properties=[["Camera", "Gain", 1]])
    second = at(1, x=9, properties=[["Camera", "Gain", 2], ["Lamp", "Power", 3]])
    third = at(2, y=8, properties=[["Lamp", "Power", 4]])
    one, two = PendingEvents(Resumed(0, 1))([first, second, third, at(3)])
    assert {key: one[key] for key in ("x", "y", "z", "config_group", "exposure")} == {
        "x": 9,
        "y": 8,
        "z": 3,
        "config_group": ["Channel", "DAPI"],
        "exposure": 4,
    }
    assert one["properties"] == [["Camera", "Gain", 2], ["Lamp", "Power", 4]]
    assert two == at(3)
    assert third == at(2, y=8, properties=[["Lamp", "Power", 4]])  # the caller's own stays as it is


def test_start_times_move_forward_over_several_calls():
    pending = PendingEvents(Resumed(0, 1, 2))
    events = [pending(at(time, min_start_time=3600.0 * time)) for time in range(5)]
    assert [event[0]["min_start_time"] for event in events if event] == [0, 3600.0]


def test_axes_in_the_deprecated_places_and_of_wrong_types():
    tiles = Resumed()
    tiles.stored = [{"time": 0, "row": 1, "column": 2}]
    assert PendingEvents(tiles)(at(0, row=1, col=2)) == []
    assert PendingEvents(Resumed(0))([{"axes": {"time": np.int64(0)}}, 5]) == [5]
