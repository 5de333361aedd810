"""A run in the place of Pycro-Manager's storage."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from acqstream.client.hook_frames import put_frame
from acqstream.client.pycromanager.frame_record import AXES_KEY, FrameRecorder
from acqstream.client.run import Run
from acqstream.errors import AcqStreamError, ConfigError
from acqstream.model.receipt import Receipt

logger = logging.getLogger(__name__)


class RunStorage:
    """The storage of the Python back end's engine; frames come in the engine's saving thread.

    verdict returns status and reason of the end, fail takes an error and ends the acquisition.
    """

    def __init__(self, run: Run, verdict: Callable[[], tuple[str, str]], fail: Callable[[BaseException], None]) -> None:
        self.run = run
        run.refused.is_raised = False
        self.receipt: Receipt | None = None
        self._verdict = verdict
        self._fail = fail
        self._recorder = FrameRecorder()
        self._dropped = 0  # frames that came again
        self._finishing = False
        self._finished = threading.Event()

    def initialize(self, summary_metadata: Mapping[str, Any]) -> None:
        """Do nothing: an error here would keep threads of the engine for ever."""

    def put_image(self, axes: Mapping[str, Any], pixels: object, metadata: Mapping[str, Any]) -> None:
        """Send one frame. Waiting here slows the engine down; `await_completion` raises the error."""
        try:
            frame = self._recorder.record(pixels, {**metadata, AXES_KEY: axes})
            if frame.axes in self.run.stored:
                self._dropped += 1
                return
            put_frame(self.run, frame.image, frame.axes, frame.metadata, bits=frame.bits, time_ns=frame.time_ns)
        except BaseException as error:
            self._fail(error)
            raise

    def finish(self) -> None:
        """Close the run and wait until it is stored. The engine calls it once or twice and must not see an error."""
        if self._finishing:
            return
        self._finishing = True
        if self._dropped:
            logger.warning("%s: %d frames came again that are stored; they were dropped", self.run.name, self._dropped)
        try:
            self.receipt = self.run.close(*self._verdict())
        except AcqStreamError as error:
            logger.warning("%s: %s", self.run.name, error)
            self._fail(error)
        finally:
            self._finished.set()

    def is_finished(self) -> bool:
        return self._finished.is_set()

    def block_until_finished(self, timeout: float | None = None) -> None:
        """Wait for the end of `finish`, at most `timeout` seconds."""
        self._finished.wait(timeout)

    def read_image(self, **axes: Any) -> NoReturn:
        """Refused: the daemon has the frames."""
        raise ConfigError(f"frames of {self.run.name!r} are read with acqstream.open({self.run.path!r})")

    read_metadata = read_image
