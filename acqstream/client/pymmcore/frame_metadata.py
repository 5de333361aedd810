"""Metadata of one frame: the values of the engine, and the keys that viewers of NDTiff read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from acqstream.client.pymmcore.axes import AXES_NOTE

if TYPE_CHECKING:
    from useq import MDAEvent

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
