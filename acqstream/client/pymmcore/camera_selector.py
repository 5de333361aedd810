"""The physical cameras that make the images of an event: several, where the core's camera combines them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pymmcore_plus import CMMCorePlus

Cameras = tuple[str, ...]


class CameraSelector:
    """Reads definitions of a core; without one, all images are of one camera. initial: the cameras in use now."""

    def __init__(self, core: CMMCorePlus | None = None) -> None:
        self.initial: Cameras = ("",)
        if core is not None:
            self.initial = tuple(map(core.getPhysicalCameraDevice, range(core.getNumberOfCameraChannels()))) or ("",)
        self._chosen = cache(partial(_camera_of_channel, core))
        self._physical = cache(partial(_physical_cameras, core))

    def select(self, channel: Any, properties: Iterable[Any] | None, before: Cameras) -> Cameras:
        """The cameras once channel and properties of an event are set; those `before` it where these choose none."""
        label = _camera_among(properties or ()) or (channel and self._chosen(channel.group, channel.config))
        return self._physical(label) if label else before


def _camera_among(settings: Iterable[Any]) -> str:
    return next((str(value) for device, name, value in settings if (device, name) == ("Core", "Camera")), "")


def _camera_of_channel(core: CMMCorePlus | None, group: str, config: str) -> str:
    return _camera_among(core.getConfigData(group, config)) if core and core.isConfigDefined(group, config) else ""


def _physical_cameras(core: CMMCorePlus | None, label: str) -> Cameras:
    """Source: Multi Camera of Micro-Manager's Utilities: `Physical Camera 1` to 4, which may be `Undefined`."""
    if core is None or label not in core.getLoadedDevices():
        return (label,)
    names = [name for name in core.getDevicePropertyNames(label) if name.startswith("Physical Camera ")]
    labels = (core.getProperty(label, name) for name in sorted(names))
    return tuple(physical for physical in labels if physical not in ("", "Undefined")) or (label,)
