"""Kinds of axes: fixed by the first value, also in a dataset that is gone on with."""

from __future__ import annotations

import pytest

from acqstream.errors import FrameRefused
from acqstream.log import frame_keys
from acqstream.log.frame_keys import AxisKinds


def test_kinds_of_an_earlier_run_count() -> None:
    kinds = AxisKinds()
    kinds.learn({"time": 0, "channel": "DAPI"})
    kinds.learn({"time": "late"})  # a dataset of others may mix: the first value counts
    kinds.check({"time": 5, "channel": "GFP", "z": 1}, 0)
    for axes in ({"time": "5"}, {"channel": 1}, {"z": "top"}):
        with pytest.raises(FrameRefused, match="an axis must not mix both") as caught:
            kinds.check(axes, 7)
        assert (caught.value.code, caught.value.number) == ("axis_kind", 7)


def test_names_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr(frame_keys, "MAX_NAMES", 3)
    kinds = AxisKinds()
    kinds.check({"a": 0, "b": 0, "c": 0}, 0)
    with pytest.raises(FrameRefused, match="has 3 axes already") as caught:
        kinds.check({"d": 0}, 1)
    assert caught.value.code == "bad_header"
    kinds.check({"c": 1, "a": 1}, 1)
