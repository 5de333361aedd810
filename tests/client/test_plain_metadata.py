"""The rule for values in metadata; the table is in `tests.conformance.odd_metadata`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from acqstream.client.plain_values import plain_metadata
from acqstream.errors import ProtocolError
from tests.conformance.odd_metadata import ODD_METADATA, SUMMARIES, Odd


@pytest.mark.promise("metadata-values")
@pytest.mark.parametrize("odd", SUMMARIES, ids=lambda odd: odd.name)
def test_what_is_stored(odd: Odd):
    plain, changes = plain_metadata(odd.given(), 2**26)
    assert json.dumps(plain) == json.dumps(odd.expected)
    assert (changes.nulls, changes.texts) == (odd.nulls, odd.texts)
    assert plain_metadata(plain)[0] is plain


def test_the_table_is_large_and_its_names_differ():
    assert len({odd.name for odd in ODD_METADATA}) == len(ODD_METADATA) >= 40


def test_the_warnings_name_the_first_value():
    texts = dict(plain_metadata({"a": {"b": [1, 1j]}, "c": float("nan")})[1].warnings("frame 3"))
    assert list(texts) == ["nan_in_metadata", "metadata_as_text"]
    assert "in frame 3 1 value is stored as text, the first is ['a']['b'][1] (complex)" in texts["metadata_as_text"]


def _laughs(levels: int) -> list:
    value: list = [None]
    for _ in range(levels):
        value = [value] * 10
    return value


@pytest.mark.parametrize(
    "given",
    [
        {"a": np.zeros(10**7)},
        {"a": np.broadcast_to(0, (10**6, 10**6))},
        {"a": range(10**12)},
        {"a": _laughs(20)},
        {"a": {1: "x" * 10**7}},
        {"a": b"x" * 10**7},
    ],
)
def test_what_has_no_bound_is_an_error_at_once(given):
    started = time.monotonic()
    with pytest.raises(ProtocolError, match=r"\['a'\].*more than 1048576 bytes.*in a file of their own"):
        plain_metadata(given)
    assert time.monotonic() - started < 30


def test_other_than_a_mapping_is_refused():
    with pytest.raises(ProtocolError, match="must be a mapping"):
        plain_metadata([1])  # type: ignore[arg-type]


def test_pandas():
    pandas = pytest.importorskip("pandas")
    given = {"a": pandas.Series([1, 2]), "b": pandas.Timestamp("2026-01-02", tz="UTC"), "c": pandas.NaT}
    assert plain_metadata(given)[0] == {"a": [1, 2], "b": "2026-01-02T00:00:00+00:00", "c": None}


CLOCK = """
import datetime, json
from acqstream.client.pycromanager.forwarding import FrameRecorder
import numpy
recorder, image, times = FrameRecorder(), numpy.zeros((4, 4), "u1"), []
for minute in range(-30, 130, 10):  # around the hour that comes twice
    moment = datetime.datetime(2026, 10, 25, tzinfo=datetime.timezone.utc) + datetime.timedelta(minutes=minute)
    text = str(moment.astimezone().replace(tzinfo=None))
    record = recorder.record(image, {"Axes": {"time": minute}, "TimeReceivedByCore": text})
    assert record.metadata["TimeReceivedByCore"] == text
    times.append((record.time_ns, record.metadata["ElapsedTime-ms"]))
print(json.dumps(times))
"""


@pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC"])
def test_local_time_is_no_moment(zone: str):
    """Pycro-Manager's hook in the hour that comes twice: its own clock decides."""
    before_ns = time.time_ns()
    environment = {**os.environ, "TZ": zone}
    command = [sys.executable, "-c", CLOCK]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120).stdout
    times = json.loads(output)
    assert times == sorted(times)
    assert all(before_ns - 10**9 < time_ns < time.time_ns() + 10**9 for time_ns, _ in times)
    assert times[0][1] == 0
    assert all(abs(elapsed_ms - (time_ns - times[0][0]) / 1e6) < 1e-3 for time_ns, elapsed_ms in times)
