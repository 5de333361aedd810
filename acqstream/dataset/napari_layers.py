"""Datasets as layers of napari: what is shown, where, and how it looks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from acqstream.arrays.level_layout import C
from acqstream.dataset.dataset import Dataset, level_arrays, small_array
from acqstream.dataset.level_array import LevelArray
from acqstream.description.channels import CHANNEL, ChannelLook, contrast_of, display_range
from acqstream.model.axes import AxisValue

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
