"""Specs of arrays: what all chunk formats compute with."""

from __future__ import annotations

import numpy as np

from acqstream.formats.chunk_format import ArraySpec


def test_axes_are_put_in_order_with_all_that_belongs_to_them() -> None:
    spec = ArraySpec(
        axes=("y", "time", "x"),
        shape=(20, 5, 30),
        dtype=np.dtype("uint16"),
        chunk_shape=(10, 1, 15),
        block_shape=(5, 1, 5),
        scale=(0.5, 2.0, 0.25),
        units=("um", "s", "nm"),
        translation=(7.0, 8.0, 9.0),
        labels={"time": ("first",)},
    )
    assert spec.ordered(("time", "z", "y", "x"), new_unit="um") == ArraySpec(
        axes=("time", "z", "y", "x"),
        shape=(5, 1, 20, 30),
        dtype=np.dtype("uint16"),
        scale=(2.0, 1.0, 0.5, 0.25),
        units=("s", "um", "um", "nm"),
        translation=(8.0, 0.0, 7.0, 9.0),
        labels={"time": ("first",)},
    )


def test_a_level_lies_on_the_centres_of_its_blocks() -> None:
    full = ArraySpec(
        axes=("time", "z", "y", "x"),
        shape=(0, 1, 21, 30),
        dtype=np.dtype("uint16"),
        scale=(2.0, 1.0, 0.5, 0.25),
        translation=(8.0, 0.0, 7.0, 9.0),
    )
    level = full.reduced((1, 2, 2, 4))
    assert level.shape == (0, 1, 10, 7)
    assert level.factors == (1, 2, 2, 4)
    assert level.scale == (2.0, 2.0, 1.0, 1.0)
    assert level.translation == (8.0, 0.5, 7.25, 9.375)
