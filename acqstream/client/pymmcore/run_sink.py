"""One run of the engine as one acquisition: events without stored frames, frames in with their metadata, receipt out.

Metadata of frames and of the run, the summary, are the values of the engine, and the keys that viewers of NDTiff read.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from useq import HardwareAutofocus, MDASequence, PropertyTuple

from acqstream.client import producer
from acqstream.client.hook_frames import CaptureClock, HookFrames, SkippedEvents, fitting_bits
from acqstream.client.pymmcore.axes import AXES_NOTE, AXIS_NAMES, AxisTranslator
from acqstream.client.pymmcore.sequence_plan import (
    CameraSelector,
    GridCells,
    GridTurn,
    SequencePlan,
    TilePlan,
    acquires,
    plan_sequence,
    plan_tiles,
    sequence_parts,
)
from acqstream.description.image_positions import POSITION_NAMES
from acqstream.description.stage import find_affine
from acqstream.errors import AcquisitionFailed, ConfigError
from acqstream.model.frame_header import pixel_type_of
from acqstream.model.receipt import Receipt
from acqstream.model.units import count_text

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from useq import MDAEvent

    from acqstream.client.run import Run

logger = logging.getLogger(__name__)
CloseStatus = Literal["completed", "canceled", "error"]
MissingPolicy = Literal["error", "warn"]
_SETTINGS = ("x_pos", "y_pos", "z_pos", "channel", "exposure", "roi", "slm_image")


class RunSink:
    """Takes the frames of one run, in the acquisition thread, where a waiting `put` slows the camera down.

    options go to `acqstream.create`; their summary, axes, frame, expect and tiles take precedence over the values from
    sequence and camera. has_plain_engine: every event makes one image per camera.
    """

    def __init__(
        self,
        name: str,
        options: Mapping[str, Any],
        *,
        counter: bool | None = None,
        missing: MissingPolicy = "error",
        has_plain_engine: bool = True,
    ) -> None:
        self.name = name
        self._options = dict(options)
        self._counter = counter
        self._missing_policy = missing
        self._has_plain_engine = has_plain_engine
        self._clock = CaptureClock()
        self._translator: AxisTranslator
        self._tiles: TilePlan | None = None
        self._checked: tuple[str, tuple[int, ...]] | None = None  # dtype and shape of the last frame, known to fit
        self._lost: list[str] = []
        self._stored: Collection[Mapping[str, Any]] = ()  # axes of frames of an earlier run, which this one resumes
        self.pending: PendingMDAEvents | None = (
            None  # removes stored events; None where none are stored, or the engine forbids it
        )
        self._is_filtered = False
        self.run: Run
        self._frames: HookFrames
        self.receipt: Receipt | None = None
        self.delivered = 0
        self.skipped = 0

    def setup(self, sequence: MDASequence, meta: Mapping[str, Any] | None, selector: CameraSelector) -> None:
        """Open the acquisition. meta is the inner engine's summary, selector that of its core.

        Raises ConfigError if the camera's pixels cannot be stored, and what `acqstream.create` raises.
        """
        meta = meta or {}
        infos = meta.get("image_infos")
        camera: Mapping[str, Any] = infos[0] if infos else {}
        frame = _frame_kind(camera)
        turn = GridTurn.of_camera(find_affine(camera))
        planned = plan_sequence(sequence, selector)
        plan = replace(planned, cells=planned.cells and turn.turn(planned.cells))
        shape = frame[0] if frame is not None else None
        options = dict(self._options)
        integers = bool(options.get("micromanager"))
        self._translator = AxisTranslator(plan, counter=self._counter, integers=integers)
        sizes = {str(key): size for key, size in sequence.sizes.items()} if plan.is_known else {}
        options.setdefault("frame", frame)
        options.setdefault("axes", self._translator.declaration(sizes))
        options.setdefault("expect", plan.frames)
        self._set_tiles(options, plan_tiles(sequence, plan, shape, turn))
        options["summary"] = {**run_summary(self.name, sequence, meta, plan), **(options.get("summary") or {})}
        self.run = producer.create(self.name, **options)
        self._frames = HookFrames(self.run)
        if options.get("resume"):
            self._resume()
            if planned.cells and plan.cells and self._counts_along_stage(planned.cells, plan.cells):
                self._translator.cells = planned.cells
                self._tiles = self._tiles and plan_tiles(sequence, plan, shape, GridTurn())

    def pending_events(self, events: Iterable[MDAEvent]) -> Iterable[MDAEvent]:
        """The events whose frames are not stored; called before the engine combines events."""
        self._is_filtered = True
        return events if self.pending is None else self.pending.filter(events)

    @property
    def unfiltered(self) -> PendingMDAEvents | None:
        """The filter of stored events, where they are not removed yet."""
        return None if self._is_filtered else self.pending

    def append(
        self, image: NDArray[Any], event: MDAEvent, meta: Mapping[str, Any], *, elapsed_ms: float = 0.0, depth: int = 0
    ) -> None:
        """Send one frame of shape (Y, X) or (Y, X, 3), of any strides: RGB comes as a view of planes.

        depth is the camera's bit depth, 0 if not known.
        """
        layout = (image.dtype.str, image.shape)
        if layout != self._checked:
            self._check_frame(image)
            self._checked = layout
        axes = self._translator.translate(event, str(meta.get("camera_device") or ""))
        stored = frame_metadata(event, meta, elapsed_ms)
        if self._tiles is not None:
            stored.update(self._tiles.place(axes))
        bits, time_ns = fitting_bits(depth, image), self._clock.now_ns()
        self.delivered += self._frames.put(image, axes, stored, bits, time_ns)

    def skip(self, frames: int = 1, *, reason: str = "skipped by the engine") -> None:
        """Declare that the next `frames` frames will never come, as the engine decided."""
        if frames > 0:
            self.run.skip(frames, reason=reason)
            self.skipped += frames

    def lose(self, frames: int, *, reason: str) -> None:
        """As `skip`, for frames that should have come, which make the run incomplete."""
        self.skip(frames, reason=reason)
        self._lost.append(f"{frames}: {reason}")
        logger.warning("%s: %d frames are missing: %s", self.name, frames, reason)

    def close(self, status: CloseStatus = "completed", reason: str = "") -> Receipt:
        """Finish the acquisition and wait until it is stored.

        Raises the run's first error; AcquisitionFailed with code `frames_missing` unless every frame that came is
        stored and, in a completed run, every frame that should have come did.
        """
        self.receipt = receipt = self.run.close(status, reason)
        if self._translator.dropped_keys:
            logger.warning("%s: index keys that came late are in the metadata only: %s", self.name, self._dropped())
        replaces = self._options.get("duplicates") == "replace"
        self._log_resumed(status)
        before = len(self._stored)
        if status != "error" and receipt.stored != before + self.delivered and not replaces:
            more = f" after {before} of an earlier run" if before else ""
            raise self._missing(
                f"{count_text(self.delivered, 'frame', 'were')} sent{more} and {receipt.stored} are stored"
            )
        if status == "completed" and self._lost and self._missing_policy == "error":
            raise self._missing(f"{count_text(self.skipped, 'frame')} never came ({'; '.join(self._lost[:5])})")
        return receipt

    def _resume(self) -> None:
        """Leave out what an earlier run has stored; of engines that may make more images than one, frame by frame."""
        self._stored = self.run.stored
        if isinstance(next(iter(self._stored), {}).get(AXIS_NAMES["cam"]), int):
            self._translator.numbers_cameras = True  # as in earlier versions
        if self._stored and (self._has_plain_engine or not self._translator.counts):
            self.pending = PendingMDAEvents(self._stored, self._translator)

    def _counts_along_stage(self, planned: GridCells, turned: GridCells) -> bool:
        """True if stored frames have rows and columns of the plan, as those of earlier versions have."""
        position = next(iter(self._stored), {}).get("position", 0)
        own = (key for key in self._stored if key.get("position", 0) == position)
        order = tuple(dict.fromkeys((key.get("row"), key.get("column")) for key in own))
        fits = [cells.of_position(position)[: len(order)] == order for cells in (planned, turned)]
        return fits == [True, False]

    def _log_resumed(self, status: CloseStatus) -> None:
        if not self._stored:
            return
        events = self.pending.skipped if self.pending is not None else 0
        logger.info("%s: resumed; %d frames were stored, %d events skipped", self.name, len(self._stored), events)
        if count := self._frames.n_dropped:
            logger.warning("%s: %d frames came again that are stored; they were dropped", self.name, count)
        if status == "completed" and not self.delivered:
            logger.warning("%s: nothing was acquired: all frames are stored already", self.name)

    def _set_tiles(self, options: dict[str, Any], tiles: TilePlan | None) -> None:
        """Set the tiles of the sequence, unless the caller gives others; `levels` are for runs with tiles only."""
        options.setdefault("tiles", None if tiles is None else {"overlap": tiles.overlap})
        if options["tiles"] is None:
            options.pop("levels", None)
        else:
            self._tiles = tiles

    def _dropped(self) -> str:
        return ", ".join(sorted(self._translator.dropped_keys))

    def _missing(self, text: str) -> AcquisitionFailed:
        return AcquisitionFailed(f"acquisition {self.name!r} is incomplete: {text}", code="frames_missing")

    def _check_frame(self, image: NDArray[Any]) -> None:
        try:
            pixel_type_of(image.dtype.str, image.shape)
        except ValueError as error:
            number = self.delivered + self.skipped
            text = f"frame {number} of {self.name!r}: {error}"
            raise AcquisitionFailed(text, code="dtype_unsupported", number=number) from error


def _frame_kind(info: Mapping[str, Any]) -> tuple[tuple[int, ...], str] | None:
    """Shape and dtype of the camera's images, None if unknown. Raises ConfigError if they cannot be stored."""
    name, shape = info.get("dtype"), info.get("plane_shape")
    if name is None or shape is None:
        return None
    try:
        dtype = np.dtype(name)
    except TypeError:
        return None  # a camera without any image yet may report nonsense; the first frame decides
    try:
        pixel_type_of(dtype.str, tuple(shape))
    except ValueError as error:
        camera = info.get("camera_label", "the camera")
        raise ConfigError(
            f"camera {camera!r} is set to {info.get('pixel_format', name)} pixels: {error}. "
            "Choose another pixel type of the camera before the run"
        ) from error
    return tuple(shape), dtype.str


class PendingMDAEvents:
    """Removes stored events from a run before any hardware is touched.

    stored are the axes of stored frames; every event makes one frame per camera. An event of which only some frames
    are stored is kept. An action before a stored frame was carried out and is not repeated, except the last autofocus
    of a position, whose result ended with the engine.
    """

    def __init__(self, stored: Collection[Mapping[str, Any]], translator: AxisTranslator) -> None:
        self._stored = stored
        self._translator = translator
        self._left_out = SkippedEvents(_SETTINGS)
        self.skipped = 0  # the number of removed events
        self._actions: list[MDAEvent] = []
        self._autofocus: dict[int | None, MDAEvent] = {}  # by position

    def filter(self, events: Iterable[MDAEvent]) -> Iterator[MDAEvent]:
        """The events to carry out, in order; looks one event ahead."""
        due: MDAEvent | None = None
        for event in events:
            if not acquires(event):
                self._actions.append(event)
                continue
            axes = self._translator.expected_axes(event)
            if all(key in self._stored for key in axes):
                self._skip(event)
                if due is not None and due.keep_shutter_open:  # for this event, which does not come
                    due = due.model_copy(update={"keep_shutter_open": False})
                continue
            if due is not None:
                yield due
            yield from self._actions_before(event)
            due = self._timed(self.with_settings(_with_axes(event, axes[0])))
        if due is not None:
            yield due
        yield from map(self._timed, self._actions)

    def is_stored(self, event: MDAEvent) -> bool:
        """The same for a single event, as from a queue: True if it is to be left out.

        Otherwise `event` carries its axes from now on, and may still need `with_settings`.
        """
        parts = getattr(event, "events", None) or (event,)
        expected = [(part, self._translator.expected_axes(part)) for part in parts if acquires(part)]
        if expected and all(key in self._stored for _, axes in expected for key in axes):
            for part, _ in expected:
                self._skip(part)
            return True
        for part, axes in expected:
            part.metadata[AXES_NOTE] = axes[0]
        return False

    def with_settings(self, event: MDAEvent) -> MDAEvent:
        """`event` with the settings that it would have inherited from skipped ones."""
        update = self._left_out.take(partial(getattr, event), event.properties)
        if "properties" in update:
            update["properties"] = [PropertyTuple(*one) for one in update["properties"]]
        return event.model_copy(update=update) if update else event

    def _skip(self, event: MDAEvent) -> None:
        self.skipped += 1
        for action in self._actions:
            if isinstance(action.action, HardwareAutofocus):
                self._autofocus[action.index.get("p")] = action
            self._left_out.clock.skip(action.min_start_time, resets=action.reset_event_timer)
        self._actions.clear()
        self._left_out.add(
            partial(getattr, event), event.properties, event.min_start_time, resets=event.reset_event_timer
        )

    def _actions_before(self, event: MDAEvent) -> Iterator[MDAEvent]:
        autofocus = self._autofocus.pop(event.index.get("p"), None)
        if autofocus is not None and not any(isinstance(action.action, HardwareAutofocus) for action in self._actions):
            yield autofocus.model_copy(update={"min_start_time": None, "reset_event_timer": False})
        yield from map(self._timed, self._actions)
        self._actions.clear()

    def _timed(self, event: MDAEvent) -> MDAEvent:
        start_s, resets = self._left_out.clock.start(event.min_start_time, resets=event.reset_event_timer)
        if (start_s, resets) == (event.min_start_time, event.reset_event_timer):
            return event
        return event.model_copy(update={"min_start_time": start_s, "reset_event_timer": resets})


def _with_axes(event: MDAEvent, axes: Mapping[str, Any]) -> MDAEvent:
    """A copy with its axes, as a list may contain the same event more than once."""
    return event.model_copy(update={"metadata": {**event.metadata, AXES_NOTE: axes}})


_LEFT_OUT = frozenset({"format", "version", "mda_event"})
# The summary has the sequence once; in every frame it would be larger than a small image.
_EVENT_LEFT_OUT = frozenset({"sequence", "slm_image"})
_NOTES = frozenset({"runner_t0", AXES_NOTE})  # the runner's for its engine, removed after the frame, and ours


def frame_metadata(event: MDAEvent, meta: Mapping[str, Any], elapsed_ms: float) -> dict[str, Any]:
    """Metadata to store with a frame, not yet plain; elapsed_ms of the run is used where `meta` lacks it."""
    stored = {str(key): value for key, value in meta.items() if key not in _LEFT_OUT}
    stored.setdefault("runner_time_ms", elapsed_ms)
    stored["mda_event"] = _event_fields(event)
    stored.update(_viewer_keys(event, stored))
    return stored


def _event_fields(event: MDAEvent) -> dict[str, Any]:
    fields = {name: getattr(event, name) for name in event.model_fields_set if name not in _EVENT_LEFT_OUT}
    fields["metadata"] = {str(key): value for key, value in event.metadata.items() if key not in _NOTES}
    return {
        name: value
        for name, value in fields.items()
        if value is not None and not (isinstance(value, Mapping) and not value)
    }


def _viewer_keys(event: MDAEvent, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Source: NDTiff metadata keys, as Micro-Manager writes them."""
    position = stored.get("position") or {}
    keys = {
        "ElapsedTime-ms": stored["runner_time_ms"],
        "Exposure-ms": stored.get("exposure_ms", event.exposure),
        "Channel": event.channel.config if event.channel is not None else None,
        "Camera": stored.get("camera_device"),
        "PixelSizeUm": stored.get("pixel_size_um"),
        "PositionName": event.pos_name,
        "XPositionUm": position.get("x", event.x_pos),
        "YPositionUm": position.get("y", event.y_pos),
        "ZPositionUm": position.get("z", event.z_pos),
    }
    return {key: value for key, value in keys.items() if value is not None}


def run_summary(name: str, sequence: MDASequence, meta: Mapping[str, Any], plan: SequencePlan) -> dict[str, Any]:
    """The summary to store, not yet plain. meta is the result of the inner engine's `setup_sequence`."""
    summary = {str(key): value for key, value in meta.items() if key != "mda_sequence"}
    summary["Prefix"] = name
    summary["StartTime"] = summary.get("datetime") or datetime.now().astimezone().isoformat()
    infos = summary.get("image_infos") or [{}]
    if infos[0].get("pixel_size_um"):
        summary["PixelSizeUm"] = infos[0]["pixel_size_um"]
    if plan.is_known:
        summary["mda_sequence"] = _sequence_fields(sequence)
        summary.update(_plan_keys(sequence, plan))
    return summary


def _sequence_fields(sequence: MDASequence) -> dict[str, Any]:
    fields: dict[str, Any] = sequence.model_dump(exclude_unset=True)
    fields["axis_order"] = list(sequence.axis_order)
    fields["uid"] = str(sequence.uid)
    return fields


def _plan_keys(sequence: MDASequence, plan: SequencePlan) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    if plan.channel_names:
        keys["ChNames"] = list(plan.channel_names)
    names = [position.name for position in sequence.stage_positions]
    if names and all(names):
        keys[POSITION_NAMES] = names
    steps_um = {getattr(part.z_plan, "step", None) for part in sequence_parts(sequence) if part.z_plan is not None}
    if len(steps_um) == 1 and (step_um := steps_um.pop()) is not None:
        keys["z-step_um"] = float(step_um)
    interval_s = _interval_s(sequence)
    if interval_s is not None:
        keys["Interval_ms"] = interval_s * 1000
    return keys


def _interval_s(sequence: MDASequence) -> float | None:
    """Interval of all time points in seconds; None where there are several, as those of phases and positions."""
    plan = sequence.time_plan
    if any(part.time_plan is not None for part in sequence_parts(sequence) if part is not sequence):
        return None
    phases: Iterable[Any] = getattr(plan, "phases", () if plan is None else (plan,))
    intervals_s = {float(phase.interval.total_seconds()) for phase in phases if phase.loops > 1}
    return intervals_s.pop() if len(intervals_s) == 1 else None
