from __future__ import annotations

import pytest

from acqstream.model.units import count_text, duration_text, rate_text, size_text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (8_388_608, "8.39 MB"), (999_900, "1 MB"), (2.5e12, "2.5 TB")],
)
def test_sizes(size_bytes: float, text: str) -> None:
    assert size_text(size_bytes) == text
    assert rate_text(size_bytes) == text + "/s"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "0.25 s"),
        (35, "35 s"),
        (59.7, "1 min 0 s"),
        (3599, "59 min 59 s"),
        (14_800, "4 h 6 min"),
        (2e5, "2 d 7 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_counts() -> None:
    assert [count_text(count, "frame") for count in (0, 1, 1200)] == ["0 frames", "1 frame", "1,200 frames"]
