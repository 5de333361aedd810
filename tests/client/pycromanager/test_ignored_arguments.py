"""Arguments of Pycro-Manager's own class that a script passes on: accepted, and named in one warning."""

from __future__ import annotations

import warnings

import pytest

from acqstream.client.pycromanager.options import without_ignored


def test_arguments_without_effect_are_named_in_one_warning() -> None:
    options = {"show_display": True, "port": 4827, "endpoint": "tcp://127.0.0.1:5271"}
    with pytest.warns(UserWarning, match="show_display, port has no effect") as caught:
        assert without_ignored(options) == {"endpoint": "tcp://127.0.0.1:5271"}
    assert len(caught) == 1
    assert "show_display" in options


@pytest.mark.parametrize("options", [{}, {"show_display": False, "napari_viewer": None}])
def test_what_asks_for_nothing_is_accepted_in_silence(options: dict[str, object]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert without_ignored(options) == {}
