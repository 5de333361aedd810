"""Which axes were used, against a plain set."""

from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from acqstream.log import frame_keys
from acqstream.log.frame_keys import FrameKeys
from acqstream.model.axes import Axes

axes = st.dictionaries(st.sampled_from("abcd"), st.integers(-2, 2) | st.sampled_from(["-1", "1", "x"]), max_size=3)


@given(st.lists(st.tuples(axes, st.booleans(), st.randoms(use_true_random=False)), max_size=60))
def test_like_a_set(steps: list[tuple[Axes, bool, random.Random]]) -> None:
    keys, model = FrameKeys(), set()
    for one, stored, shuffle in steps:
        items = list(one.items())
        shuffle.shuffle(items)
        key = frozenset(items)
        assert keys.add(dict(items)) == (key not in model)
        if stored or key in model:
            model.add(key)
        else:
            keys.discard(dict(reversed(items)))
        assert len(keys) == len(model)


def test_many_keys_in_any_order_of_their_axes() -> None:
    keys = FrameKeys()
    count = 3 * frame_keys._RECENT // 2
    assert all(keys.add({"time": number, "z": -number}) for number in range(count))
    assert len(keys) == count
    assert keys._runs
    assert not any(keys.add({"z": -number, "time": number}) for number in range(0, count, 7))
    assert keys.add({"time": 1, "z": 1})


def test_the_newest_key_can_always_be_taken_back(monkeypatch) -> None:
    monkeypatch.setattr(frame_keys, "_RECENT", 4)
    keys = FrameKeys()
    for number in range(30):
        assert keys.add({"time": number})
        keys.discard({"time": number})
        assert keys.add({"time": number}), f"key {number}"
    assert len(keys) == 30
    assert not any(keys.add({"time": number}) for number in range(30))


def test_a_flood_of_axis_names_costs_bounded_memory(monkeypatch) -> None:
    monkeypatch.setattr(frame_keys, "_MAX_ORDERS", 8)
    keys = FrameKeys()
    names = [f"n{number}" for number in range(6)]
    for one in itertools.combinations(names, 3):
        assert keys.add(dict.fromkeys(one, 0))
    for one in itertools.permutations(names, 3):
        assert not keys.add(dict.fromkeys(one, 0))
    assert len(keys._orders) <= 8
    assert len(keys._canonical) <= 8
