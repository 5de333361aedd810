"""The runs of one engine, one after another, with the result and error of each."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pymmcore_plus.mda import FinishReason

from acqstream.client.daemon_report import end_reason
from acqstream.client.pymmcore.run_sink import CloseStatus, MissingPolicy, RunSink
from acqstream.client.pymmcore.sequence_plan import CameraSelector
from acqstream.client.run import Run
from acqstream.errors import AcqStreamError
from acqstream.model.receipt import Receipt

if TYPE_CHECKING:
    from useq import MDASequence

logger = logging.getLogger(__name__)
Naming = Callable[["MDASequence", int], str]  # the sequence and the number of earlier runs -> name of the dataset
Options = Callable[[int], Mapping[str, Any]]  # the number of earlier runs -> options of `acqstream.create`


class Streamer:
    """Makes an acquisition of every run; created by `streaming` and `install`.

    last_run, last_receipt and last_error are those of the run that started last. first_error is the first of all runs.
    """

    def __init__(
        self,
        naming: Naming,
        options: Options,
        stop: Callable[[], None],
        *,
        counter: bool | None = None,
        missing: MissingPolicy = "error",
    ) -> None:
        self._naming = naming
        self._options = options
        self._stop = stop  # ends the engine's run from any thread
        self._counter = counter
        self._missing: MissingPolicy = missing
        self._n_runs = 0
        self.sink: RunSink | None = None  # of the present run
        self._last: RunSink | None = None
        self._cause: BaseException | None = None  # the error of the engine's run, if known
        self._ended = threading.Event()
        self._ended.set()
        self.thread: threading.Thread | None = None  # of the present run
        self.is_detached = False
        self.first_error: AcqStreamError | None = None
        self.last_error: AcqStreamError | None = None

    @property
    def last_run(self) -> Run | None:
        return getattr(self._last, "run", None)

    @property
    def last_receipt(self) -> Receipt | None:
        """None during the last run, and when it ended without a receipt."""
        return None if self._last is None else self._last.receipt

    @property
    def last_skipped(self) -> int:
        """Events of the last run that were left out because their frames were stored before, see resume=True."""
        pending = self._last.pending if self._last is not None else None
        return pending.skipped if pending is not None else 0

    def prepare(self) -> None:
        """A run starts in this thread; an earlier one without an end is closed first."""
        self.abandon()
        self.thread = threading.current_thread()
        self._ended.clear()
        self._cause = None

    def begin(
        self, sequence: MDASequence, meta: Mapping[str, Any] | None, selector: CameraSelector, *, has_plain_engine: bool
    ) -> None:
        """Open the acquisition of this run; raises if that is not possible. has_plain_engine: see `RunSink`."""
        if self.is_detached:
            return
        options = dict(self._options(self._n_runs))
        sink: RunSink = RunSink(
            self._naming(sequence, self._n_runs),
            {**options, "on_error": lambda error: self._fail(sink, error, options.get("on_error"))},
            counter=self._counter,
            missing=self._missing,
            has_plain_engine=has_plain_engine,
        )
        self._last, self.last_error = sink, None
        try:
            sink.setup(sequence, meta, selector)
        except AcqStreamError as error:
            self.keep(error)
            raise
        self._n_runs += 1
        self.sink = sink

    def keep(self, error: BaseException) -> None:
        """Remember why the run fails."""
        self._cause = self._cause or error
        if isinstance(error, AcqStreamError):
            self.last_error = self.last_error or error
            self.first_error = self.first_error or error

    def complete(self) -> None:
        """All events are done: close the acquisition while `core.mda.run` can still raise its error."""
        sink, self.sink = self.sink, None
        if sink is None:
            return
        try:
            sink.close("completed")
        except AcqStreamError as error:
            self.keep(error)
            raise

    def end(self, reason: FinishReason | None) -> None:
        """The run is over. Never raises; errors are kept and logged."""
        sink, self.sink = self.sink, None
        try:
            if sink is not None:
                sink.close(*self._verdict(reason))
        except AcqStreamError as error:
            self.keep(error)
            logger.exception("%s: the run is not stored as it should be", sink.name if sink else "")
        finally:
            self.thread = None
            self._ended.set()

    def abandon(self) -> None:
        """Close a run whose thread ended without closing it, as by a keyboard interrupt."""
        if self.sink is not None:
            self._cause = self._cause or InterruptedError("the acquisition thread was interrupted")
        self.end(FinishReason.ERRORED)

    def wait(self) -> None:
        """Wait until the present run is over, or its thread has ended."""
        thread = self.thread
        if thread is None or thread is threading.current_thread():
            return
        while thread.is_alive() and not self._ended.wait(timeout=0.1):
            pass

    def _verdict(self, reason: FinishReason | None) -> tuple[CloseStatus, str]:
        if reason is FinishReason.COMPLETED:
            return "completed", ""
        if reason is FinishReason.CANCELED and self._cause is None:
            return "canceled", "canceled at the microscope"
        return "error", end_reason(self._cause).splitlines()[0] if self._cause else "the acquisition engine failed"

    def _fail(self, sink: RunSink, error: AcqStreamError, on_error: Callable[[AcqStreamError], None] | None) -> None:
        """The acquisition failed between two frames: end the engine's run now, not with its next frame."""
        if self.sink is sink:
            self.keep(error)
            logger.error("%s: %s; the run is canceled", sink.name, error)
            self._stop()
        if on_error is not None:
            on_error(error)
