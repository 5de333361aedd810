"""Datasets in napari: its reader, their layers, which grow, and a slider that follows what is new.

`image_layers` decides what is shown, where, and how it looks. `get_reader` is the reader for
`viewer.open(path, plugin="acqstream")` (manifest: acqstream/napari.yaml).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from acqstream.arrays.array_plan import growing_axis
from acqstream.arrays.level_layout import C
from acqstream.dataset.dataset import Dataset, level_arrays, open_dataset, small_array
from acqstream.dataset.level_array import LevelArray
from acqstream.description.channels import CHANNEL, ChannelLook, contrast_of, display_range
from acqstream.errors import AcqStreamError, DatasetError
from acqstream.formats.registry import find_format
from acqstream.model.axes import AxisValue
from acqstream.storage.files.url_path import as_path

LayerData = tuple[Any, ...]
"""(data, keywords of add_image, "image")"""

METADATA_KEY = "acqstream"
"""Key of the `LayerSource` in a layer's metadata."""


@dataclass(frozen=True, slots=True)
class LayerSource:
    """The content of a layer: one channel of a dataset, or all of it."""

    dataset: Dataset
    channel: AxisValue | None


def image_layers(dataset: Dataset, excluded: Collection[AxisValue | None] = ()) -> list[LayerData]:
    """A layer for each channel seen so far that is not `excluded`; none before the first frame.

    The data are arrays that read when napari asks: one, or for a pyramid one per level, all over the same axes.
    """
    if not dataset.levels[0].item_count:
        return []
    layers: list[LayerData] = []
    for channel, look in dataset.channel_looks().items():
        if channel in excluded:
            continue
        source = LayerSource(dataset, channel)
        keywords: dict[str, Any] = {
            "name": f"{dataset.path.name} {look.name}".rstrip(),
            "metadata": {METADATA_KEY: source},
            **data_of(source),
        }
        data = keywords.pop("data")
        if not keywords["rgb"]:
            limits = look.limits or contrast_of(_any_picture(source))  # of other software's arrays
            shown = display_range(replace(look, limits=limits), dataset.dtype, dataset.levels[0].source.bits)
            keywords["colormap"] = look.color
            keywords["contrast_limits"] = (shown.start, shown.end)
            keywords["blending"] = "translucent" if channel is None else "additive"
        layers.append((data, keywords, "image"))
    return layers


def widen_ranges(viewer: Any) -> None:
    """Let the sliders for the contrast of new layers reach all values: napari ends them at the limits of the layer."""
    viewer.layers.events.inserted.connect(_widen)


def _widen(event: Any) -> None:
    source = event.value.metadata.get(METADATA_KEY)
    if isinstance(source, LayerSource) and not event.value.rgb:
        level, (start, end) = source.dataset.levels[0], event.value.contrast_limits
        found = display_range(ChannelLook("", "", (start, end)), level.dtype, level.source.bits)
        event.value.contrast_limits_range = (found.low, found.high)


def data_of(source: LayerSource) -> dict[str, Any]:
    """The keywords of `add_image` that change while the dataset grows, `data` among them.

    An axis with known distances lies at its place, for one position at that on the stage; other axes count pixels.
    """
    level = source.dataset.levels[0].source
    arrays = level_arrays(source.dataset, _fixed(source))
    axes = [axis for axis in arrays[0].shown if axis.name != C or axis not in arrays[0].layout.pixels]
    spacings = [axis.spacing(level.spacing(axis.name)) for axis in axes]
    return {
        "data": arrays if len(arrays) > 1 else arrays[0],
        "multiscale": len(arrays) > 1,
        "rgb": len(arrays[0].shape) > len(axes),
        "axis_labels": tuple(axis.name for axis in axes),
        "scale": [spacing.step for spacing in spacings],
        "translate": [spacing.start for spacing in spacings],
        "units": [spacing.unit or "pixel" for spacing in spacings],
    }


def _fixed(source: LayerSource) -> dict[str, AxisValue]:
    return {} if source.channel is None else {CHANNEL: source.channel}


def _any_picture(source: LayerSource) -> NDArray[Any]:
    """The first picture, from a small level."""
    array: LevelArray = small_array(source.dataset, _fixed(source))
    return array[(0,) * len(array.outer) if array.layout.pixels else (0,) * max(0, array.ndim - 2)]


KEY = "F"
_STOPPED = f"not following: the slider was moved; press {KEY} to follow the newest frame"


class NewestFrame:
    """Keeps a viewer at the newest complete time until somebody moves its slider; the key F switches it on and off.

    A time is complete when it has all frames that other times have; other sliders stay where they are. Without times it
    follows z, else the slowest axis. A line in the viewer names the place, or the reason why it does not follow.
    """

    def __init__(self, viewer: Any, dataset: Dataset) -> None:
        self.is_following = True
        self._viewer = viewer
        self._dataset = dataset
        self._points: dict[int, float] = {}  # where the sliders were put, by axis of the viewer
        viewer.text_overlay.visible = True
        viewer.bind_key(KEY, lambda _viewer: self.toggle(), overwrite=True)

    def notice_moves(self) -> None:
        """Stop if the slider was moved. Call it before the layers grow, which can move it as well."""
        if self.is_following and self._is_moved():
            self.is_following = False
            self._viewer.text_overlay.text = _STOPPED

    def update(self) -> None:
        """Move the slider. Call it in the thread of the window, after the layers have grown."""
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
        """The newest complete value of the axis that grows, by its name; None before the first frame."""
        level = self._dataset.levels[0]
        if not level.item_count:
            return None
        values = level.axis_values()
        name = growing_axis(dict.fromkeys([name for name in values if name != CHANNEL], 0))
        if name is None:
            return {}
        along, key = values[name], self._dataset.newest_key() if self._dataset.has_frames else None
        if key is None:  # chunk formats announce what is complete
            return {name: along[-1]}
        last = along.index(key[name]) if name in key else 0
        selection = tuple(last if axis == name else slice(None) for axis in level.axes)
        return {name: along[last - 1 if last and level.missing(selection, limit=1) else last]}


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


INTERVAL_MS = 100
"""Period in which a window looks for new frames."""

_KEPT = ("name", "blending", "opacity", "visible", "gamma", "contrast_limits", "colormap")


class LiveLayers:
    """The layers of one dataset in a viewer: napari's window, or its model without one. follow: see `NewestFrame`."""

    def __init__(self, viewer: Any, dataset: Dataset, *, follow: bool = False) -> None:
        self._viewer = viewer
        self._dataset = dataset
        widen_ranges(viewer)
        self._counts = self._count()
        self._shown = self._channels()
        self._newest = NewestFrame(viewer, dataset) if follow else None
        if self._newest is not None:
            self._newest.update()

    def update(self) -> bool:
        """Show the frames that came since, new channels as new layers; False when nothing more will come.

        Call it in the thread of the window. A layer that was removed stays away. Raises as `Dataset.refresh`.
        """
        if self._newest is not None:
            self._newest.notice_moves()
        self._dataset.refresh()
        writing = self._dataset.writing  # after the refresh: when it is false, that one brought the last frames
        counts = self._count()
        if counts != self._counts:
            self._show()
            self._counts = counts
        if self._newest is not None:
            self._newest.update()
        return writing

    def _count(self) -> list[int]:
        return [level.item_count for level in self._dataset.levels]

    def _channels(self) -> set[AxisValue | None]:
        if not self._dataset.levels[0].item_count:
            return set()
        return set(self._dataset.levels[0].axis_values().get(CHANNEL, [None]))

    def _show(self) -> None:
        steps, places = self._viewer.dims.current_step, self._places()
        for layer in self._own_layers():
            self._grow(layer, layer.metadata[METADATA_KEY])
        # As when the interval of times is known: the sliders show the same as before.
        if self._places() != places and self._viewer.dims.ndim == len(steps):
            self._viewer.dims.set_current_step(range(len(steps)), steps)
        for data, keywords, _ in image_layers(self._dataset, self._shown):
            self._viewer.add_image(data, **keywords)
        self._shown |= self._channels()

    def _own_layers(self) -> list[Any]:
        sources = [(layer, layer.metadata.get(METADATA_KEY)) for layer in self._viewer.layers]
        return [layer for layer, source in sources if getattr(source, "dataset", None) is self._dataset]

    def _places(self) -> list[list[float]]:
        """Distances and places along the axes of each layer."""
        return [[*layer.scale, *layer.translate] for layer in self._own_layers()]

    def _grow(self, layer: Any, source: LayerSource) -> None:
        if source.channel not in self._channels():  # channels came after frames without one
            return
        keywords = data_of(source)
        if keywords["multiscale"] == layer.multiscale and len(keywords["axis_labels"]) == layer.ndim:
            layer.data = keywords["data"]
            layer.scale, layer.translate, layer.units = (keywords[name] for name in ("scale", "translate", "units"))
            return
        # a first lower level, or a new axis: a layer cannot become that
        position = self._viewer.layers.index(layer)
        kept = {name: getattr(layer, name) for name in _KEPT}
        self._viewer.layers.remove(layer)
        data = keywords.pop("data")
        added = self._viewer.add_image(data, metadata=layer.metadata, **(keywords | kept))
        self._viewer.layers.move(self._viewer.layers.index(added), position)


def live_layers(viewer: Any) -> list[LiveLayers]:
    """One for each dataset that is shown in a viewer and still written."""
    sources = [layer.metadata.get(METADATA_KEY) for layer in viewer.layers]
    shown = {id(source.dataset): source.dataset for source in sources if isinstance(source, LayerSource)}
    return [LiveLayers(viewer, dataset) for dataset in shown.values() if dataset.writing]


def start_timer(dataset: Dataset, *, follow: bool = False) -> bool:
    """Update the layers of the dataset in the current window until it is finished; False without a window.

    A dataset that cannot be read any more ends it: napari shows the error.
    """
    import napari

    viewer = napari.current_viewer()
    if viewer is None:
        return False
    from qtpy.QtCore import QTimer

    live = LiveLayers(viewer, dataset, follow=follow)
    timer = QTimer(viewer.window._qt_window)

    def tick() -> None:
        try:
            writing = live.update()
        except DatasetError:
            timer.stop()
            raise
        if not writing:
            timer.stop()

    timer.timeout.connect(tick)
    timer.start(INTERVAL_MS)
    return True


PathLike = str | os.PathLike[str]
_NO_LAYER: LayerData = (None,)


def get_reader(path: PathLike | Sequence[PathLike]) -> Callable[[Any], list[LayerData]] | None:
    """`read_layers` for the folder of a dataset or a file in it; None for everything else, and for several paths."""
    if not isinstance(path, (str, os.PathLike)):
        return None
    try:
        find_format(as_path(path))
    except (AcqStreamError, OSError, ValueError):  # napari asks for every path
        return None
    return read_layers


def read_layers(path: PathLike) -> list[LayerData]:
    """An image layer per channel. In a window it follows a dataset that is being written.

    Links out of the dataset are not followed. Raises as `acqstream.open`.
    """
    dataset = open_dataset(path)
    layers = image_layers(dataset)
    napari = sys.modules.get("napari")  # not loaded: no window
    if napari is not None and (viewer := napari.current_viewer()):
        widen_ranges(viewer)
    if dataset.writing:
        start_timer(dataset)
    return layers or [_NO_LAYER]


def show_layers(viewer: Any, path: PathLike, *, follow_links: bool = False, follow: bool = False) -> None:
    """Add the layers of `read_layers` to a viewer. follow: see `NewestFrame`."""
    dataset = open_dataset(path, follow_links=follow_links)
    widen_ranges(viewer)
    for data, keywords, _ in image_layers(dataset):
        viewer.add_image(data, **keywords)
    if dataset.writing:
        start_timer(dataset, follow=follow)
    elif follow:
        NewestFrame(viewer, dataset).update()
