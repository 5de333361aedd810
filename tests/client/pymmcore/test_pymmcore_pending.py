"""Which events of a resumed run are carried out, and what the skipped ones leave to the next."""

from __future__ import annotations

import useq

from acqstream.client.pymmcore.axes import AxisTranslator
from acqstream.client.pymmcore.run_sink import PendingMDAEvents, frame_metadata
from acqstream.client.pymmcore.sequence_plan import SequencePlan, plan_sequence

ROI = (0, 0, 8, 8)


def left(events, stored, plan=None):
    """The events left, and the translator that knows their axes."""
    translator = AxisTranslator(plan or SequencePlan())
    pending = PendingMDAEvents(stored, translator)
    return list(pending.filter(events)), translator, pending


def at(t, **more):
    return useq.MDAEvent(index={"t": t}, **more)


def autofocus(t, p=0):
    action = useq.HardwareAutofocus(autofocus_device_name="Z", autofocus_motor_offset=1.0)
    return useq.MDAEvent(index={"t": t, "p": p}, action=action)


def custom(name):
    return useq.MDAEvent(action=useq.CustomAction(name=name))


def stored_times(*times):
    return [{"time": t, "frame": 0} for t in times]


def test_the_same_event_many_times_keeps_its_numbers():
    """A hole in the middle: what comes into it has the number that it would have had."""
    event = useq.MDAEvent()
    events, translator, pending = left([event] * 5, [{"frame": number} for number in (0, 1, 3)])
    assert [translator.translate(one) for one in events] == [{"frame": 2}, {"frame": 4}]
    assert pending.skipped == 3
    assert event.metadata == {}
    assert "metadata" not in frame_metadata(events[0], {}, 0.0)["mda_event"]  # what we note there is ours


def test_settings_of_skipped_events_are_handed_on_once():
    first = at(0, x_pos=5, y_pos=6, z_pos=7, exposure=20, channel="DAPI", roi=ROI, properties=[("Camera", "Gain", 1)])
    second = at(1, x_pos=8, properties=[("Camera", "Gain", 2), ("Lamp", "Power", 3)])
    third = at(2, y_pos=1, properties=[("Lamp", "Power", 4)])
    (one, two), translator, _ = left([first, second, third, at(3)], stored_times(0, 1))
    assert (one.x_pos, one.y_pos, one.z_pos, one.exposure, one.channel.config) == (8, 1, 7, 20, "DAPI")
    assert one.roi == first.roi
    assert {tuple(entry) for entry in one.properties} == {("Camera", "Gain", 2), ("Lamp", "Power", 4)}
    assert (two.x_pos, two.channel, two.properties) == (None, None, None)
    assert translator.translate(one) == {"time": 2, "frame": 0}  # the channel that it got is not in its index


def test_position_properties_of_a_sequence_outlive_the_event_that_has_them():
    positions = [{"x": x, "y": 0, "properties": [("Objective", "State", str(x))]} for x in (0, 1)]
    sequence = useq.MDASequence(stage_positions=positions, z_plan={"range": 2, "step": 1})
    stored = [{"position": p, "z": z} for p in (0, 1) for z in range(3)][:5]
    events, _, _ = left(list(sequence), stored, plan_sequence(sequence))
    assert [dict(one.index) for one in events] == [{"p": 1, "z": 2}]
    assert [tuple(entry) for entry in events[0].properties] == [("Objective", "State", "1")]


def test_the_shutter_is_not_left_open_for_a_skipped_event():
    events, _, _ = left([at(t, keep_shutter_open=True) for t in range(4)], stored_times(1, 3))
    assert [(one.index["t"], one.keep_shutter_open) for one in events] == [(0, False), (2, False)]
    events, _, _ = left([at(t, keep_shutter_open=True) for t in range(3)], stored_times(0))
    assert [one.keep_shutter_open for one in events] == [True, True]


def names(events):
    return [getattr(one.action, "name", "autofocus") if not _is_image(one) else one.index["t"] for one in events]


def _is_image(event):
    return isinstance(event.action, useq.AcquireImage)


def test_actions_before_a_stored_frame_were_carried_out():
    plan = [custom("drug"), at(0), custom("wash"), at(1), custom("dye"), at(2), custom("end")]
    events, _, _ = left(plan, stored_times(0, 1))
    assert names(events) == ["dye", 2, "end"]
    events, _, _ = left(plan, stored_times(0, 1, 2))
    assert names(events) == ["end"]
    events, _, _ = left(plan, [])
    assert names(events) == ["drug", 0, "wash", 1, "dye", 2, "end"]


def test_the_focus_is_found_again_for_the_position_that_is_left():
    plan = [autofocus(0), at(0), at(1), at(2), autofocus(3), at(3)]
    events, _, _ = left(plan, stored_times(0))
    assert names(events) == [1, 2, "autofocus", 3]  # the frames are of no position: the first focus was not theirs

    def there(t):
        return useq.MDAEvent(index={"t": t, "p": 0})

    plan = [autofocus(0), there(0), there(1), there(2), autofocus(3), there(3)]
    stored = [{"time": t, "position": 0, "frame": 0} for t in (0, 1)]
    events, _, _ = left(plan, stored)
    assert [(one.index["t"], _is_image(one)) for one in events] == [(0, False), (2, True), (3, False), (3, True)]
