"""What a daemon takes at its start: memory of the views' process by the configuration."""

from __future__ import annotations

from typing import Any

import psutil
import pytest

from acqstream.daemon import resources
from acqstream.daemon.config import DaemonConfig

MIB = 2**20


@pytest.mark.parametrize(
    ("settings", "mib"),
    [
        ({}, 768),
        ({"mirrors": ["ome-zarr"]}, 276),
        ({"mirrors": ["n5", "ome-zarr"]}, 552 + 276),
        ({"mirrors": ["n5"], "mirror_memory_mb": 600}, 168),  # the rest of that is for rebuilding and encoding
        ({"mirrors": ["n5"], "mirror_memory_mb": 300}, 300),  # not even one: what is taken for unknown frames
        ({"mirrors": ["n5"], "ready_memory_mb": 96}, 96),
        ({"mirrors": ["n5"], "ready_memory_mb": 0}, 0),
        ({"ready_memory_mb": 96, "mirror_memory_mb": 64}, 64),
    ],
)
def test_memory_is_taken_for_the_mirrors_and_never_more_than_one_may_take(
    settings: dict[str, Any], mib: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ram:
        total = 64 * 2**30

    monkeypatch.setattr(psutil, "virtual_memory", Ram)
    monkeypatch.setattr("acqstream.storage.memory_limit.memory_limit_bytes", lambda: None)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    config = DaemonConfig(**{"mirror_memory_mb": 2048, **settings})
    assert resources.ready_bytes_of(config) == mib * MIB
