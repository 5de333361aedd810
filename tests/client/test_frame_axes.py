"""Axes from keywords and mappings, and as Micro-Manager reads them."""

from __future__ import annotations

import enum

import numpy as np
import pytest

from acqstream.client.plain_values import MicroManagerAxes, plain_axes
from acqstream.errors import ConfigError, ProtocolError


class Axis(str, enum.Enum):
    CHANNEL = "channel"


def test_keywords_and_a_mapping_are_merged_and_plain():
    axes = plain_axes({Axis.CHANNEL: np.str_("DAPI"), "z": np.int16(-2)}, {"time": np.uint8(3)})
    assert axes == {"channel": "DAPI", "z": -2, "time": 3}
    assert [type(value) for value in axes.values()] == [str, int, int]
    assert all(type(name) is str for name in axes)


@pytest.mark.parametrize(
    ("axes", "keywords", "text"),
    [
        ({"z": 1}, {"z": 2}, "both"),
        (7, {}, "must be a mapping"),
        ({"z": 1.5}, {}, "'z'"),
        ({}, {"z": 2**31}, "32 bits"),
        ({"a b": 1}, {}, "letters"),
    ],
)
def test_what_is_no_axis_is_named(axes, keywords, text):
    with pytest.raises(ProtocolError, match=text):
        plain_axes(axes, keywords)


def test_channel_names_become_their_places():
    converter = MicroManagerAxes({"ChNames": ["DAPI", "FITC"]})
    assert converter.convert({"time": 3, "channel": "FITC"}) == {"time": 3, "channel": 1}
    assert converter.convert({"channel": 1}) == {"channel": 1}


@pytest.mark.parametrize(
    ("summary", "axes", "text"),
    [
        ({}, {"channel": "DAPI"}, r"summary=\{'ChNames': \['DAPI'"),
        ({"ChNames": ["FITC"]}, {"channel": "DAPI"}, "is not in summary"),
        ({"ChNames": ["FITC"]}, {"position": "A1"}, "needs integer axes"),
    ],
)
def test_names_without_a_place_are_refused_with_what_to_pass(summary, axes, text):
    with pytest.raises(ConfigError, match=text):
        MicroManagerAxes(summary).convert(axes)


def test_channel_names_must_be_a_list():
    with pytest.raises(ConfigError, match="list of channel names"):
        MicroManagerAxes({"ChNames": "DAPI"})
