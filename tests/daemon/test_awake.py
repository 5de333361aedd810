"""The PC does not sleep while something is recorded."""

from __future__ import annotations

import logging

import pytest

from acqstream.daemon.supervisor import Awake
from acqstream.storage import platform


def test_the_system_is_asked_when_the_first_run_opens_and_the_last_one_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    monkeypatch.setattr(platform, "keep_awake", calls.append)
    awake = Awake()
    for is_needed in (False, True, True, True, False, False, True):
        awake.keep(is_needed)
    assert calls == [True, False, True]


def test_a_refusal_is_logged_once_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_is_needed: bool) -> None:
        raise OSError(5, "refused")

    monkeypatch.setattr(platform, "keep_awake", refuse)
    awake = Awake()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            awake.keep(True)
    assert len(caplog.records) == 1
    assert "may sleep" in caplog.text
