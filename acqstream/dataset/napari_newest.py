"""Moves the sliders of a viewer to the newest frame of a dataset, and shows that it does."""

from __future__ import annotations

from typing import Any

from acqstream.dataset.dataset import Dataset
from acqstream.dataset.napari_layers import METADATA_KEY, LayerSource, data_of
from acqstream.model.axes import AxisValue

KEY = "F"
_STOPPED = f"not following: a slider was moved; press {KEY} to follow the newest frame"


class NewestFrame:
    """Keeps a viewer at the newest frame until somebody moves a slider; the key F switches it on and off.

    A line in the viewer names the frame, or the reason why it does not follow. Datasets without frames are followed
    along their slowest axis.
    """

    def __init__(self, viewer: Any, dataset: Dataset) -> None:
        self.is_following = True
        self._viewer = viewer
        self._dataset = dataset
        self._points: dict[int, float] = {}  # where the sliders were put, by axis of the viewer
        viewer.text_overlay.visible = True
        viewer.bind_key(KEY, lambda _viewer: self.toggle(), overwrite=True)

    def update(self) -> None:
        """Move the sliders. Call it in the thread of the window, after the layers have grown."""
        if self.is_following and self._is_moved():
            self.is_following = False
            self._viewer.text_overlay.text = _STOPPED
        if self.is_following:
            self._show()

    def toggle(self) -> None:
        """Follow, or stay at the frame that is shown."""
        self.is_following = not self.is_following
        self._points = {}
        if self.is_following:
            self._show()
        else:
            self._viewer.text_overlay.text = f"not following; press {KEY} to follow the newest frame"

    def _is_moved(self) -> bool:
        point = self._viewer.dims.point
        # Only where it was put: the viewer itself has changed the others when it got another axis.
        return any(axis >= len(point) or point[axis] != value for axis, value in self._points.items())

    def _show(self) -> None:
        newest = self._newest()
        for layer in self._viewer.layers:
            source = layer.metadata.get(METADATA_KEY)
            if newest is None or not isinstance(source, LayerSource) or source.dataset is not self._dataset:
                continue
            place, points = _place_in(source, newest), {}
            first = self._viewer.dims.ndim - layer.ndim  # a layer has the last axes of the viewer
            for axis, world in place.items():
                self._viewer.dims.set_point(first + axis, world)
                points[first + axis] = self._viewer.dims.point[first + axis]
            self._points = points
            shown = ", ".join(f"{name} {value}" for name, value in newest.items()) or "the only frame"
            state = "following" if self._dataset.writing else "finished, newest frame"
            self._viewer.text_overlay.text = f"{state}: {shown}"
            return

    def _newest(self) -> dict[str, AxisValue] | None:
        if self._dataset.has_frames:
            return self._dataset.newest_key()
        level = self._dataset.levels[0]
        if not level.item_count:
            return None
        return {name: values[-1] for name, values in list(level.axis_values().items())[:1]}


def _place_in(source: LayerSource, newest: dict[str, AxisValue]) -> dict[int, float]:
    """Places of a frame in world coordinates, by axis of the layer; of those axes that have sliders."""
    keywords = data_of(source)
    data = keywords["data"]
    shown = (data[0] if keywords["multiscale"] else data).shown
    names = list(keywords["axis_labels"])
    places = {}
    for axis in shown:
        if axis.name in newest and axis.name in names and newest[axis.name] in axis.values:
            number = names.index(axis.name)
            index = list(axis.values).index(newest[axis.name])
            places[number] = keywords["translate"][number] + index * keywords["scale"][number]
    return places
