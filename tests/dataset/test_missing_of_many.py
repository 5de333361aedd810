"""Which frames are missing: by columns for many places, by look-ups for few, with one answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.arrays.level_layout import Missing
from acqstream.frames import frame_region
from tests.formats.ndtiff.ndtiff_bytes import Folder, image


@pytest.mark.parametrize("lacks_an_axis", [False, True])
def test_many_places_give_what_few_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks_an_axis: bool) -> None:
    folder, rng = Folder(tmp_path), np.random.default_rng(3)
    for time in range(40):
        for channel in ("a", "b", "c"):
            if rng.random() < 0.6:
                z = {} if lacks_an_axis and time % 3 == 0 else {"z": int(rng.integers(4))}
                folder.add({"time": time, "channel": channel, **z}, image(0))
    with acqstream.open(tmp_path) as dataset:
        array = dataset.levels[0]

        def asked() -> list[list[Missing]]:
            return [array.missing(), array.missing(limit=7), array.missing(np.s_[3:30:4, 1:]), array.missing(np.s_[5])]

        few = asked()
        monkeypatch.setattr(frame_region, "_MANY_PLACES", 0)
        assert asked() == few
        assert len(few[0]) > 100
