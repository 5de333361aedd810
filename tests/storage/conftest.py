"""The tests of the disk use it to the end."""

from __future__ import annotations

import pytest

from tests import unforced


@pytest.fixture(autouse=True)
def _forces(monkeypatch: pytest.MonkeyPatch) -> None:
    unforced.force_again(monkeypatch)
