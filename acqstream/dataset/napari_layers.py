"""Datasets as layers of napari: what is shown, where, and how it looks."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from acqstream.dataset.channel_looks import CHANNEL, channel_looks, contrast_of
from acqstream.dataset.dataset import Dataset
from acqstream.dataset.level_array import LevelArray, View, view_of
from acqstream.model.axes import AxisValue

LayerData = tuple[Any, ...]
"""(data, keywords of add_image, "image")"""

METADATA_KEY = "acqstream"
"""Where a layer's metadata holds its `LayerSource`."""


@dataclass(frozen=True, slots=True)
class LayerSource:
    """What a layer shows: one channel of a dataset, or all of it."""

    dataset: Dataset
    channel: AxisValue | None


def image_layers(dataset: Dataset, known: Collection[AxisValue | None] = ()) -> list[LayerData]:
    """A layer for each channel seen so far that is not `known`; none while there is no frame.

    The data are arrays that read when napari asks: one, or for a pyramid one per level, all over the same axes.
    """
    if not dataset.levels[0].frame_count:
        return []
    channels: Sequence[AxisValue] = dataset.levels[0].axis_values().get(CHANNEL, ())
    looks = channel_looks(channels, dataset.summary_metadata, dataset.display_settings)
    layers: list[LayerData] = []
    shown: Sequence[AxisValue | None] = channels or [None]
    for channel, look in zip(shown, looks, strict=True):
        if channel in known:
            continue
        source = LayerSource(dataset, channel)
        keywords: dict[str, Any] = {
            "name": f"{dataset.path.name} {look.name}".rstrip(),
            "metadata": {METADATA_KEY: source},
            **data_of(source),
        }
        data = keywords.pop("data")
        if not keywords["rgb"]:
            keywords["colormap"] = look.color
            keywords["contrast_limits"] = look.limits or contrast_of(_any_frame(source))
            keywords["blending"] = "additive" if channels else "translucent"
        layers.append((data, keywords, "image"))
    return layers


def data_of(source: LayerSource) -> dict[str, Any]:
    """The keywords of `add_image` that change while the dataset grows, `data` among them."""
    level = source.dataset.levels[0]
    view = view_of(level)
    view = view if source.channel is None else view.at(CHANNEL, source.channel)
    arrays = _arrays(source.dataset, view)
    first, step = _z_places(view, level.z_step_um)
    pixel_um = level.pixel_size_um or 1.0
    axes = arrays[0].axes[: len(view.values) + 2]
    scales = {"z": step, "y": pixel_um, "x": pixel_um}
    starts = {"z": first, "y": view.window.start[0] * pixel_um, "x": view.window.start[1] * pixel_um}
    in_um = {"y", "x"} if level.pixel_size_um else set()
    if level.z_step_um:
        in_um.add("z")
    return {
        "data": arrays if len(arrays) > 1 else arrays[0],
        "multiscale": len(arrays) > 1,
        "rgb": len(arrays[0].shape) > len(axes),
        "axis_labels": axes,
        "scale": [scales.get(axis, 1.0) for axis in axes],
        "translate": [starts.get(axis, 0.0) for axis in axes],
        "units": ["um" if axis in in_um else "pixel" for axis in axes],
    }


def _arrays(dataset: Dataset, view: View) -> list[LevelArray]:
    """The view in all levels that have it: napari wants the same axes in all, and the same place."""
    arrays = [LevelArray(dataset.levels[0], view)]
    axes = dataset.levels[0].axis_values().keys()
    for number, level in enumerate(dataset.levels[1:], 1):
        if not level.frame_count or level.axis_values().keys() != axes:
            break
        arrays.append(LevelArray(level, view.reduced(2**number)))
    return arrays


def _z_places(view: View, step_um: float | None) -> tuple[float, float]:
    """Where the first z lies and how far apart they are, in um or steps; from 0 by 1 where they are not even."""
    values = [value for value in view.values.get("z", ()) if isinstance(value, int)]
    step = step_um or 1.0
    if not values or len(values) != len(view.values["z"]):
        return 0.0, step
    spacing = values[1] - values[0] if len(values) > 1 else 1
    is_even = all(second - one == spacing for one, second in itertools.pairwise(values))
    return (values[0] * step, spacing * step) if is_even else (0.0, step)


def _any_frame(source: LayerSource) -> Any:
    """The first frame of the channel that arrived."""
    keys = source.dataset.keys()
    key = next(key for key in keys if source.channel is None or key.get(CHANNEL) == source.channel)
    return source.dataset.read_frame(key)
