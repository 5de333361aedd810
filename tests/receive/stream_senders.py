"""Senders of streams as other programs are, written from their published formats."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import zmq


class StreamSender:
    """A PUSH or PUB socket on `endpoint`."""

    def __init__(self, endpoint: str, *, pattern: Literal["pull", "sub"], bind: bool) -> None:
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.XPUB if pattern == "sub" else zmq.PUSH)
        self.socket.linger = 5000
        self.socket.sndtimeo = 10_000
        if bind:
            self.socket.bind(endpoint)
        else:
            self.socket.connect(endpoint)
        self._is_pub = pattern == "sub"

    def wait_for_receiver(self) -> None:
        """A PUB drops what nobody has subscribed to yet; a PUSH waits by itself."""
        if self._is_pub:
            assert self.socket.poll(10_000)
            assert self.socket.recv() == b"\x01"

    def area_detector(self, image: np.ndarray, frame: int, *, note: str = "", encoding: str = "") -> None:
        """As areaDetector's ZMQ plugin: text attributes are pasted, so a quote in `note` breaks the JSON."""
        header = (
            f'{{"htype":["array-1.0"], "type":"{image.dtype.name}", "shape":{list(image.shape)}, "frame":{frame}, '
            f'"timeStamp":{1e9 + frame:f}, "encoding":"{encoding}", "ndattr":{{"Gain":1.5,"Note":"{note}"}}}}'
        )
        self.socket.send_multipart([header.encode(), image.astype(image.dtype.newbyteorder("<")).tobytes()])

    def psi(self, image: np.ndarray, frame: int, **more: Any) -> None:
        """As at PSI: big-endian pixels, and the byte order's key as real senders spell it."""
        header = {
            "htype": "array-1.0",
            "type": image.dtype.name,
            "shape": list(image.shape),
            "frame": frame,
            "endianess": "big",
            "source": "gigafrost",
            **more,
        }
        self.socket.send_multipart([json.dumps(header).encode(), image.astype(image.dtype.newbyteorder(">")).tobytes()])

    def odin(self, image: np.ndarray, frame: int, *, dataset: str = "data", compression: str = "none") -> None:
        """As odin-data's LiveViewPlugin: compact JSON, the sides as texts, the members in its order."""
        header = {
            "frame_num": frame,
            "acquisition_id": "test_3",
            "dtype": image.dtype.name,
            "dsize": image.nbytes,
            "dataset": dataset,
            "compression": compression,
            "tags": [],
            "shape": [str(side) for side in image.shape],
        }
        self.socket.send_multipart([json.dumps(header, separators=(",", ":")).encode(), image.tobytes()])

    def recipe(self, image: np.ndarray) -> None:
        """As `send_array` in pyzmq's documentation."""
        self.socket.send_json({"dtype": str(image.dtype), "shape": image.shape}, zmq.SNDMORE)
        self.socket.send(image.tobytes())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()
        self._context.term()
