"""Datasets as layers of napari: what is shown, where, and how it looks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from acqstream.arrays.channel_looks import CHANNEL, channel_looks, contrast_of
from acqstream.dataset.dataset import Dataset
from acqstream.dataset.level_array import LevelArray
from acqstream.dataset.level_choice import level_arrays, small_array
from acqstream.dataset.source import C
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
    channels: Sequence[AxisValue] = dataset.levels[0].axis_values().get(CHANNEL, ())
    looks = channel_looks(channels, dataset.summary_metadata, dataset.display_settings)
    layers: list[LayerData] = []
    shown: Sequence[AxisValue | None] = channels or [None]
    for channel, look in zip(shown, looks, strict=True):
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
            keywords["colormap"] = look.color
            keywords["contrast_limits"] = look.limits or contrast_of(_any_picture(source))
            keywords["blending"] = "additive" if channels else "translucent"
        layers.append((data, keywords, "image"))
    return layers


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
    """The first frame of the channel that arrived; of arrays, the first picture, from a small level."""
    if source.dataset.has_frames:
        keys = source.dataset.keys()
        key = next(key for key in keys if source.channel is None or key.get(CHANNEL) == source.channel)
        return source.dataset.read_frame(key)
    array: LevelArray = small_array(source.dataset, _fixed(source))
    return array[(0,) * len(array.outer) if array.layout.pixels else (0,) * max(0, array.ndim - 2)]
