"""Requested views: what a request stores, and what a damaged one is."""

from __future__ import annotations

from typing import Any

import pytest

from acqstream.errors import FieldError
from acqstream.model.acquisition_spec import AcquisitionSpec
from acqstream.model.fields import Fields
from acqstream.model.view_spec import MIRROR_STATES, MirrorResult, ViewSpec, requested_views

GZIP = {"format": "n5", "compression": "gzip"}
VIEWS = (ViewSpec("n5"), ViewSpec("n5", GZIP, "n5-2"), ViewSpec("null"), ViewSpec("wkw", {"format": "wkw"}))


def test_the_stored_request_is_that_of_earlier_versions() -> None:
    request = AcquisitionSpec(dataset_id="07", name="cells", views=VIEWS).as_request()
    assert list(request) == [
        *("dataset_id", "name", "summary", "frame", "axes", "expect", "durability", "replace_duplicates"),
        *("number_if_taken", "resume", "epoch", "mirrors", "mirror_settings", "default_mirrors", "tiles"),
    ]
    assert request["mirrors"] == ("n5", "n5-2", "null", "wkw")
    assert request["mirror_settings"] == {"n5-2": GZIP, "wkw": {"format": "wkw"}}
    assert requested_views(request) == VIEWS


def test_datasets_without_views_have_none() -> None:
    assert requested_views({}) == requested_views({"mirrors": None, "mirror_settings": None}) == ()


@pytest.mark.parametrize(
    "request_fields",
    [
        {"mirrors": "n5"},
        {"mirrors": [1]},
        {"mirrors": ["../x"]},
        {"mirrors": ["x/y"], "mirror_settings": {"x/y": {"format": "n5"}}},
        {"mirrors": ["n5"], "mirror_settings": [1]},
        {"mirrors": ["n5"], "mirror_settings": {"n5": "x"}},
        {"mirrors": ["n5"], "mirror_settings": {"n5": {"blocks": [1, 2, 3]}}},
        {"mirrors": ["n5"], "mirror_settings": {"n5": {"format": 5}}},
    ],
    ids=repr,
)
def test_a_damaged_request_is_refused(request_fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"mirrors|name of a view|settings of view"):
        requested_views(request_fields)


def test_settings_make_a_mirror_whatever_its_name() -> None:
    named = ViewSpec("n5", {"format": "n5", "name": "pyramid"}, "pyramid")
    assert (named.is_mirror, named.is_pyramid) == (True, False)
    assert (ViewSpec("pyramid").is_mirror, ViewSpec("pyramid").is_pyramid) == (False, True)
    assert ViewSpec("n5").mirror_settings == {"format": "n5"}


def test_a_state_of_a_later_version_reads_as_unfinished() -> None:
    later = MirrorResult.of(Fields({"name": "n5", "state": "postponed", "frames": 3, "reason": "at night"}))
    assert later == MirrorResult(name="n5", state="unfinished", frames=3, reason="at night")
    for state in MIRROR_STATES:
        assert MirrorResult.of(Fields({"name": "n5", "state": state})).state == state
    for values in ({"name": "n5"}, {"name": "n5", "state": 3}):
        with pytest.raises(FieldError, match="state"):
            MirrorResult.of(Fields(values))
