"""Metadata of frames and of a run, the summary: the values of the engine, and the keys that viewers of NDTiff read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from acqstream.client.pymmcore.axes import AXES_NOTE
from acqstream.client.pymmcore.sequence_plan import SequencePlan, sequence_parts
from acqstream.description.image_positions import POSITION_NAMES

if TYPE_CHECKING:
    from useq import MDAEvent, MDASequence

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
