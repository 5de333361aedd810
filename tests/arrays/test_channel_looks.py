"""Colours and contrast from display settings of any content."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from acqstream.description.channels import ChannelLook, Limits, channel_looks, display_range, settings_of
from acqstream.model.axes import AxisValue


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"Min": 1, "Max": 2.5}, (1.0, 2.5)),
        ({"Min": 2, "Max": 2}, None),
        ({"Min": 0, "Max": 10**400}, None),
        ({"Min": 0, "Max": float("inf")}, None),
        ({"Min": float("nan"), "Max": 1}, None),
    ],
)
def test_limits_are_finite_or_none(settings: dict[str, Any], expected: tuple[float, float] | None) -> None:
    (look,) = channel_looks(["a"], {}, {"a": settings})
    assert look.limits == expected


BLUE, GREEN = -16776961, -16711936  # signed ARGB, as Micro-Manager writes them
SUMMARY = {"ChNames": ["DAPI", "GFP", "Cy5"], "ChColors": [BLUE, GREEN, -8355712]}


@pytest.mark.parametrize(
    ("channels", "settings", "colors"),
    [
        (["DAPI", "GFP"], {}, ["#0000ff", "#00ff00"]),
        (["GFP", "DAPI"], {}, ["#00ff00", "#0000ff"]),  # by name, not by place
        ([2, 0], {}, ["#f03cf4", "#0000ff"]),  # grey is the default of Micro-Manager, and nobody's choice
        (["DAPI"], {"DAPI": {"Color": -1}}, ["#ffffff"]),
        (["BF", None, "x"], {}, ["#ffffff", "#f03cf4", "#00ff00"]),  # a place without a frame
        ([], {}, ["#ffffff"]),
    ],
)
def test_colours_by_settings_then_the_summary_then_the_name(
    channels: list[Any], settings: dict[str, Any], colors: list[str]
) -> None:
    assert [look.color for look in channel_looks(channels, SUMMARY, settings)] == colors


def test_contrast_by_settings_then_the_frames() -> None:
    shown: dict[AxisValue | None, Limits] = {"a": (3.0, 9.0), "b": (1.0, 2.0)}
    looks = channel_looks(["a", "b", "c"], {}, {"a": {"Min": 5, "Max": 7}}, shown)
    assert [look.limits for look in looks] == [(5.0, 7.0), (1.0, 2.0), None]
    again = channel_looks(["a", "b", "c"], {}, settings_of(looks))
    assert again == looks  # what a mirror's note says is what the dataset says


@pytest.mark.parametrize(
    ("limits", "dtype", "bits", "expected"),
    [
        ((100.2, 599.7), "u2", 12, (0, 4095, 100, 600)),
        (None, "u2", 12, (0, 4095, 0, 4095)),
        (None, "u1", 0, (0, 255, 0, 255)),
        ((-5.0, 0.0), "u2", 0, (0, 65535, 0, 1)),
        ((5000.0, 5000.5), "u2", 12, (0, 5001, 5000, 5001)),
        ((0.25, 0.5), "f4", 0, (0, 1, 0.25, 0.5)),
    ],
)
def test_ranges_rise_and_end_with_the_bits(
    limits: tuple[float, float] | None, dtype: str, bits: int, expected: tuple[float, ...]
) -> None:
    shown = display_range(ChannelLook("a", "#ffffff", limits), np.dtype(dtype), bits)
    assert (shown.low, shown.high, shown.start, shown.end) == expected
