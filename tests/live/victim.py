"""An acquisition that runs while others misbehave, and must not notice."""

from __future__ import annotations

import threading

import acqstream
from tests.live.stored import check_frames, image_of, unstalled

SHAPE = (200, 300)


class Victim:
    """A producer at work all the time."""

    def __init__(self, endpoint: str) -> None:
        self.run = acqstream.create("victim", endpoint=endpoint, on_exists="number", buffer_mb=8)
        self.error: BaseException | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        try:
            number = 0
            while not self._is_over.wait(0.002):
                self.run.put(image_of(number, SHAPE), time=number)
                number += 1
        except acqstream.AcqStreamError as error:
            self.error = error

    def finish(self) -> None:
        """End it, and prove that every frame is there."""
        self._is_over.set()
        self._thread.join()
        assert self.error is None
        receipt = self.run.close()
        assert receipt.complete
        assert unstalled(self.run.warnings) == []
        assert check_frames(self.run.path, lambda _: SHAPE) == receipt.sent
