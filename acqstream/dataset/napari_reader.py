"""The reader of napari for `viewer.open(path, plugin="acqstream")` (manifest: acqstream/napari.yaml)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from acqstream.dataset.dataset import open_dataset
from acqstream.dataset.napari_layers import LayerData, image_layers, widen_ranges
from acqstream.dataset.napari_live import NewestFrame, start_timer
from acqstream.errors import AcqStreamError
from acqstream.formats.registry import find_format
from acqstream.storage.files.url_path import as_path

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
    """Add the layers of `read_layers` to a viewer. follow: the sliders go to the newest frame, also later ones."""
    dataset = open_dataset(path, follow_links=follow_links)
    widen_ranges(viewer)
    for data, keywords, _ in image_layers(dataset):
        viewer.add_image(data, **keywords)
    if dataset.writing:
        start_timer(dataset, follow=follow)
    elif follow:
        NewestFrame(viewer, dataset).update()
