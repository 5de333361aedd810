"""Attaches to a core, for the runs of a `with` block or for every run from now on."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from acqstream.client.arguments import checked_choice, checked_flag
from acqstream.client.pymmcore.engine import StreamingEngine, stop_camera
from acqstream.client.pymmcore.run_sink import MissingPolicy
from acqstream.client.pymmcore.streamer import Naming, Options, Streamer
from acqstream.client.run import Run
from acqstream.errors import AcqStreamError, ConfigError
from acqstream.model.receipt import Receipt

if TYPE_CHECKING:
    from pymmcore_plus import CMMCorePlus
    from pymmcore_plus.mda import PMDAEngine
    from useq import MDASequence

DEFAULT_NAME = "{time:%Y-%m-%d_%H-%M-%S}"
NameSource = str | Callable[["MDASequence"], str] | None


@contextmanager
def streaming(
    core: CMMCorePlus,
    name: str,
    *,
    endpoint: str | None = None,
    counter: bool | None = None,
    missing: MissingPolicy = "error",
    **options: Any,
) -> Iterator[Streamer]:
    """Send the frames of the runs made inside the `with` block to the daemon, as dataset `name`.

    A second run in the block goes to a dataset of its own, whose number the daemon appends to the name. counter adds
    the axis `frame` (None: where the events may repeat an index). missing="warn" accepts runs in which the engine
    delivered fewer frames than it should. options go to `acqstream.create`, also data= in place of endpoint. With
    resume=True the first run continues the dataset: events whose frames are stored are skipped.

    A run does not start if the daemon does not take it. On leaving, a run that is still on in another thread is waited
    for (canceled, if the block ended by an exception) and the former engine is put back. Raises the first error of all
    runs in the block, also where `core.mda.run` could not: leaving without one means that all of them are stored.
    """

    def options_of(number: int) -> Mapping[str, Any]:
        numbered = {"on_exists": "number", "resume": False} if number else {}
        return {"endpoint": endpoint, **options, **numbered}

    attachment = Attachment(core, lambda sequence, number: name, options_of, counter=counter, missing=missing)
    try:
        yield attachment.streamer
    except BaseException:
        attachment.finish(cancel=True)
        raise
    was_replaced = attachment.finish(cancel=False)
    if attachment.streamer.first_error is not None:
        raise attachment.streamer.first_error
    if was_replaced:
        raise ConfigError(f"the engine was replaced inside streaming({name!r}): runs after that were not stored")


def install(
    core: CMMCorePlus,
    *,
    endpoint: str | None = None,
    name: NameSource = None,
    counter: bool | None = None,
    missing: MissingPolicy = "error",
    **options: Any,
) -> Installation:
    """Send the frames of every run from now on to the daemon, each run as a dataset of its own.

    name is a function of the sequence, or a text in which {time} stands for the start, with a format as in
    "cells_{time:%H%M}"; by default the time alone. Names that are taken get a number. The rest is as in `streaming`.
    """
    chosen = {"on_exists": "number", "endpoint": endpoint, **options}
    return Installation(Attachment(core, _naming(name), lambda number: chosen, counter=counter, missing=missing))


class Attachment:
    """A streaming engine in the place of a core's own."""

    def __init__(
        self,
        core: CMMCorePlus,
        naming: Naming,
        options: Options,
        *,
        counter: bool | None = None,
        missing: MissingPolicy = "error",
    ) -> None:
        missing = checked_choice("missing", missing, ("error", "warn"))
        counter = None if counter is None else checked_flag("counter", counter)
        self._core = core
        core_ref = weakref.ref(core)

        def stop() -> None:
            if (alive := core_ref()) is not None:
                alive.mda.cancel()
                stop_camera(alive)

        self.streamer = Streamer(naming, options, stop, counter=counter, missing=missing)
        self._engine = _attach(core, self.streamer)

    @property
    def is_running(self) -> bool:
        """True if a run is on in another thread; one of this thread was interrupted, as we are not inside it."""
        thread = self.streamer.thread
        return thread is not None and thread is not threading.current_thread() and thread.is_alive()

    def finish(self, *, cancel: bool) -> bool:
        """Wait for the run that is on, first canceled if `cancel`, and detach; True if the engine was not ours."""
        if cancel and self.is_running:
            self._core.mda.cancel()
        self.streamer.wait()
        return self.detach()

    def detach(self) -> bool:
        """Put the former engine back, unless it was replaced by another one: then True.

        A run whose thread has ended without closing it (a keyboard interrupt) is closed as failed. The runner then
        still counts as running and keeps its engine: ours stays, without effect.
        """
        if self.streamer.sink is not None:
            stop_camera(self._core)
        self.streamer.abandon()
        self.streamer.is_detached = True
        if _engine_of(self._core) is not self._engine:
            return True
        if not self._core.mda.is_running():
            self._core.mda.set_engine(self._engine._acqstream_inner)
        return False


class Installation:
    """The result of `install`: `uninstall`, and the state of the last run."""

    def __init__(self, attachment: Attachment) -> None:
        self._attachment = attachment

    @property
    def last_run(self) -> Run | None:
        return self._attachment.streamer.last_run

    @property
    def last_receipt(self) -> Receipt | None:
        """None during the last run, and when it ended without a receipt."""
        return self._attachment.streamer.last_receipt

    @property
    def last_error(self) -> AcqStreamError | None:
        """The error why the last run is not stored, or incomplete; else None."""
        return self._attachment.streamer.last_error

    def uninstall(self) -> None:
        """Put the former engine back. Raises ConfigError while a run is on; a second call does nothing."""
        if self._attachment.streamer.is_detached:
            return
        if self._attachment.is_running:
            raise ConfigError("a run is on; wait for its end, or cancel it, before uninstalling")
        self._attachment.detach()


def _attach(core: CMMCorePlus, streamer: Streamer) -> StreamingEngine:
    engine = _engine_of(core)
    if engine is None:
        raise ConfigError("this core has no acquisition engine")
    if not isinstance(engine, StreamingEngine):
        attached = StreamingEngine(engine, core, streamer)
        core.mda.set_engine(attached)
        return attached
    if not engine._acqstream_streamer.is_detached:
        raise ConfigError("this core's frames already go to a daemon; uninstall that, or leave its block, first")
    engine._acqstream_streamer = streamer  # one that could not be removed, see `Attachment.detach`
    return engine


def _engine_of(core: CMMCorePlus) -> PMDAEngine | None:
    """The engine in use; pymmcore-plus declares it as its own class, which it need not be."""
    return cast("PMDAEngine | None", core.mda.engine)


def _naming(source: NameSource) -> Naming:
    if callable(source):
        return lambda sequence, number: source(sequence)
    template = DEFAULT_NAME if source is None else source
    return lambda sequence, number: template.format(time=datetime.now().astimezone())
