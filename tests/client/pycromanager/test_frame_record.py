"""What is stored with a frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from acqstream.client.pycromanager.forwarding import FrameRecorder
from acqstream.errors import ProtocolError

# As the Python back end gives them.
IN_SEQUENCE: dict[str, Any] = {
    "Binning": "1",
    "Camera": "Camera",
    "ElapsedTime-ms": 0.0,
    "Height": "512",
    "ImageNumber": "7",
    "PixelType": "GRAY16",
    "ROI-X-start": "0",
    "TimeReceivedByCore": "2026-11-21 05:30:12.657920",
    "Width": "512",
    "Axes": {"time": 7},
}
SNAPPED: dict[str, Any] = {
    "Camera": "Camera",
    "Height": 512,
    "Width": 512,
    "PixelType": None,
    "ElapsedTime-ms": 32.75,
    "Axes": {"time": 5, "channel": "DAPI"},
}


def test_the_array_is_believed_and_numbers_are_numbers():
    frame = FrameRecorder().record(np.zeros((30, 40), "u1"), IN_SEQUENCE)
    assert frame.axes == {"time": 7}
    assert frame.metadata == {
        "Binning": 1,
        "Camera": "Camera",
        "ElapsedTime-ms": 0.0,
        "Height": 30,
        "ImageNumber": 7,
        "PixelType": "GRAY8",
        "ROI-X-start": 0,
        "TimeReceivedByCore": "2026-11-21 05:30:12.657920",
        "Width": 40,
    }


def test_elapsed_times_of_a_sequence_are_those_of_its_frames():
    recorder = FrameRecorder()
    first, second = (recorder.record(np.zeros((2, 2), "u2"), IN_SEQUENCE) for _ in range(2))
    assert first.metadata["ElapsedTime-ms"] == 0 < second.metadata["ElapsedTime-ms"]
    assert second.metadata["ElapsedTime-ms"] == pytest.approx((second.time_ns - first.time_ns) / 1e6)


def test_a_snapped_frame_keeps_its_elapsed_time():
    frame = FrameRecorder().record(np.zeros((2, 2), "u2"), SNAPPED)
    assert (frame.metadata["ElapsedTime-ms"], frame.metadata["PixelType"]) == (32.75, "GRAY16")


@pytest.mark.parametrize(
    ("depth", "dtype", "bits"),
    [("12", "u2", 12), (16, "u2", 16), (12, "u1", None), (None, "u2", None), ("x", "u2", None)],
)
def test_bits_are_the_bit_depth_where_it_fits(depth, dtype, bits):
    frame = FrameRecorder().record(np.zeros((2, 2), dtype), {**SNAPPED, "BitDepth": depth})
    assert frame.bits == bits


@pytest.mark.parametrize("axes", [None, "time", [1]])
def test_a_frame_without_axes_is_refused(axes):
    with pytest.raises(ProtocolError, match="Axes"):
        FrameRecorder().record(np.zeros((2, 2), "u1"), {**SNAPPED, "Axes": axes})


def test_places_are_found_under_the_names_of_viewers():
    tags = {
        **SNAPPED,
        "PixelSize_um": 0.5,
        "XPosition_um_Intended": 1.0,
        "XPosition_um": 1.25,
        "YPosition_um_Intended": 2.0,
    }
    stored = FrameRecorder().record(np.zeros((3, 4), "u2"), tags).metadata
    assert (stored["PixelSizeUm"], stored["XPositionUm"], stored["YPositionUm"]) == (0.5, 1.25, 2.0)
    assert "ZPositionUm" not in stored
    assert stored["XPosition_um_Intended"] == 1.0
