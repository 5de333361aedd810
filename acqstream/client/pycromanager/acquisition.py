"""Pycro-Manager's acquisition (Python back end) whose frames go to the daemon and nowhere else."""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from acqstream.client import producer
from acqstream.client.daemon_report import end_reason
from acqstream.client.pycromanager.forwarding import PendingEvents, RunStorage
from acqstream.client.pycromanager.options import take_name, with_tiles, without_ignored
from acqstream.client.run import Run
from acqstream.errors import AcqStreamError, ConfigError
from acqstream.extras import install_command
from acqstream.model.receipt import Receipt

try:
    from pycromanager.acquisition.acq_eng_py.internal.engine import Engine
    from pycromanager.acquisition.acq_eng_py.main.acq_eng_metadata import AcqEngMetadata
    from pycromanager.acquisition.acq_future import AcquisitionFuture
    from pycromanager.acquisition.acquisition_superclass import EventQueue
    from pycromanager.acquisition.python_backend_acquisitions import PythonBackendAcquisition
except ImportError as error:
    raise ImportError(
        f"acqstream.client.pycromanager.Acquisition needs pycromanager 1.0 or newer, which cannot be "
        f"imported ({error}); install it with: {install_command('pycromanager')}"
    ) from error

logger = logging.getLogger(__name__)
CALLBACKS = (
    "event_generation_hook_fn",
    "pre_hardware_hook_fn",
    "post_hardware_hook_fn",
    "post_camera_hook_fn",
    "notification_callback_fn",
    "image_saved_fn",
    "image_process_fn",
)


class Acquisition(PythonBackendAcquisition):  # type: ignore[misc]
    """As `pycromanager.Acquisition`, with a run at the daemon as its storage.

    Leaving its `with` block (or `await_completion`) without an exception means that every frame is stored. Raises
    otherwise the first error: of the daemon, of the engine, or of a callback. An exception in the block aborts the
    acquisition and comes out as it is.
    """

    _failure: BaseException | None = None

    def __init__(self, *arguments: object, debug: bool = False, **options: Any) -> None:
        """Open the run at the daemon, then set the acquisition up. Raises what `acqstream.create` raises.

        options are hooks and callbacks of `pycromanager.Acquisition`, what `acqstream.create` takes, and tile_overlap
        and max_multi_res_index of `pycromanager.XYTiledAcquisition`: the events' axes then have `row` and `column`.
        show_display, napari_viewer, saving_queue_size, timeout and port have no effect, and a warning names them. name
        is the dataset's. A directory, before it or by its name, must be the daemon's own; else ConfigError is raised.
        """
        name = take_name(arguments, options)
        options = with_tiles(without_ignored(options))
        options["summary"] = {**_engine_summary(name), **(options.get("summary") or {})}
        self._waiting_ended = InterruptedError("the acquisition was aborted")  # for the engine only, not a failure
        callbacks = {key: self._guarded(options.pop(key)) for key in CALLBACKS if options.get(key) is not None}
        self._on_error = options.pop("on_error", None)
        # Before the engine: its threads keep the interpreter from ending when its set-up fails.
        self.run: Run = producer.create(name, on_error=self._end_with, **options)
        self._storage = RunStorage(self.run, self._verdict, self._fail)
        self._pending = PendingEvents(self.run)
        try:
            super().__init__(name=name, debug=debug, **callbacks)
        except BaseException as error:
            self._end_setup(error)
            raise
        self._acq.block_unless_aborted = self._wait_for_event
        if self._failure is not None:  # it came before there was an engine to abort
            self.abort(self._failure)

    @property
    def _dataset(self) -> RunStorage:
        """The library sets a storage of its own here and then uses the value that it reads."""
        return self._storage

    @_dataset.setter
    def _dataset(self, storage: object) -> None:
        pass

    @property
    def receipt(self) -> Receipt | None:
        """The receipt: stored frames, path and missing frames; None before the end."""
        return self._storage.receipt

    def acquire(self, event_or_events: Any) -> Any:
        """As in Pycro-Manager; raises the acquisition's first error, if there is one.

        With resume=True events whose frames are stored are left out, also of the future that is returned.
        """
        if self._failure is not None:
            raise self._failure
        if not self.run.stored or event_or_events is None:
            return super().acquire(event_or_events)
        pending = self._pending(event_or_events)
        if isinstance(pending, list) and not pending:
            return AcquisitionFuture(self, pending)
        with self._event_queue.unfiltered():
            return super().acquire(pending)

    @property
    def skipped(self) -> int:
        """Events that were left out because their frames were stored before, see resume=True."""
        return self._pending.skipped

    def _create_event_queue(self) -> None:
        """Hooks put events into it as well."""
        self._event_queue = PendingEventQueue(self._pending)

    def abort(self, exception: BaseException | None = None) -> None:
        """As in Pycro-Manager. With an exception the dataset ends as an error, otherwise as canceled."""
        if self._acq is None:
            return
        super().abort(exception)
        self.mark_finished()  # the discarded events may have included that mark

    def await_completion(self) -> None:
        """Wait until everything is stored. Raises the first error."""
        if not self._finished:
            super().await_completion()
        if self._failure is not None:
            raise self._failure

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.abort(error)
        self.mark_finished()
        try:
            self.await_completion()
        except BaseException as other:
            if error is None:
                raise
            if other is not error:
                error.add_note(f"the acquisition {self.run.name!r} failed too: {other}")

    # --- called by the library and by the run's thread ---------------------------------------------------------------

    def _check_for_exceptions(self) -> None:
        if not self._event_thread.is_alive() and not self._acq.are_events_finished():
            self._fail(ConfigError("an event, or what generates the events, is not usable: see stderr"))
        cause = self._cause()
        if cause is not None:
            raise cause

    def _cause(self) -> BaseException | None:
        """The error that ends the acquisition, or None."""
        errors: tuple[BaseException | None, ...] = (self._failure, self._exception, self._acq.abort_exception_)
        for error in errors:
            if error is not None and error is not self._waiting_ended:
                return error
        return None

    def _verdict(self) -> tuple[str, str]:
        cause = self._cause()
        if cause is not None:
            return "error", end_reason(cause)
        return ("canceled", "aborted at the microscope") if self._acq.is_abort_requested() else ("completed", "")

    def _end_with(self, error: AcqStreamError) -> None:
        """The run failed between two frames: do not wait for the next one."""
        self._fail(error)
        if self._on_error is not None:
            self._on_error(error)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        acq = getattr(self, "_acq", None)
        if acq is not None:
            _open_queues(acq)
            self.abort(error)

    def _wait_for_event(self, timeout_ms: float) -> None:
        """In the place of the engine's own, which returns at once after an abort and is then called again and again."""
        if self._acq.abort_requested_.wait(timeout_ms / 1000):
            raise self._cause() or self._waiting_ended

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` such that its errors end the acquisition.

        The library would continue without the thread that called it, end without an error, or wait for ever.
        """

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            try:
                result = function(*arguments)
                if isinstance(result, list):  # images: the engine's thread would die of it
                    raise ConfigError(f"{function!r} returned a list; the Python back end takes one item or None")
            except Exception as error:
                logger.exception("%s: a callback failed", self.run.name)
                self._fail(error)
                return None
            return result

        return call

    def _end_setup(self, error: BaseException) -> None:
        """The set-up failed: end what it started."""
        acq = getattr(self, "_acq", None)
        if acq is not None:
            if not acq.is_started():
                acq.start()  # its threads end only if all of them exist
            self._fail(error)
            self._storage.block_until_finished()
        else:
            self.run.__exit__(type(error), error, error.__traceback__)


def _engine_summary(name: str) -> dict[str, Any]:
    """Summary metadata as the engine makes it. Raises ConfigError where no acquisition could work."""
    if Engine.get_instance() is None:
        raise ConfigError(
            "Pycro-Manager has no Python back end; call pycromanager.start_headless(..., python_backend=True)"
        )
    core = Engine.get_core()
    try:
        summary = dict(AcqEngMetadata.make_summary_metadata(core, None))
    except (AttributeError, RuntimeError) as error:  # the former for RGB
        camera = core.get_camera_device()
        text = f"Pycro-Manager cannot acquire from camera {camera!r} as it is set: {error}; choose 8 or 16 bit pixels"
        raise ConfigError(text) from error
    summary["Prefix"] = name
    if summary.get("PixelSize_um"):
        summary["PixelSizeUm"] = summary["PixelSize_um"]
    return summary


def _open_queues(acq: Any) -> None:
    """Unblock the engine's threads that pass frames on, as the receiving threads have ended, or will."""
    for queue in (acq.first_dequeue_, *acq.processor_output_queues_.values()):
        with queue.mutex:
            queue.maxsize = sys.maxsize
            queue.not_full.notify_all()


class PendingEventQueue(EventQueue):  # type: ignore[misc]
    """Takes events from `acquire`, which filters them first (`unfiltered`), and from hooks."""

    def __init__(self, pending: PendingEvents) -> None:
        super().__init__()
        self._pending = pending
        self._of_thread = threading.local()  # is_filtered: events of this thread were filtered before

    @contextmanager
    def unfiltered(self) -> Iterator[None]:
        """Events that this thread puts inside the block are not filtered."""
        self._of_thread.is_filtered = True
        try:
            yield
        finally:
            self._of_thread.is_filtered = False

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Add events; None marks their end."""
        if item is not None and not getattr(self._of_thread, "is_filtered", False):
            item = self._pending(item)
            if isinstance(item, list) and not item:
                return
        super().put(item, block, timeout)
