"""The state of a Neuroglancer that shows a virtual OME-Zarr. Pure. Source: the JSON schema of Neuroglancer's viewer.

The page of a viewer keeps documents and missing chunks for its life, so a growing run is followed by new sources: each
has the number of frames in its path. It would prefetch some sixty frames around the one shown, so that is turned off.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.ome_zarr.image_folders import CHANNEL, SAMPLE
from acqstream.formats.ome_zarr.metadata import omero_channels
from acqstream.model.axes import TIME, Z

PUBLIC_CLIENT = "https://neuroglancer-demo.appspot.com/"
CONCURRENT_DOWNLOADS = 4
MAX_LAYERS = 8  # of channels
_SPATIAL = ("x", "y", Z)
_SI = {"um": (1e-6, "m"), "s": (1.0, "s")}
_NAMES = {TIME: "t"}
_CHANNEL_SHADER = """#uicontrol invlerp normalized(range=[{start},{end}], window=[{min},{max}])
#uicontrol vec3 color color(default="#{color}")
void main() {{ emitRGB(color * normalized()); }}
"""
_COLOUR_SHADER = """void main() {
  emitRGB(vec3(toNormalized(getDataValue(0)), toNormalized(getDataValue(1)), toNormalized(getDataValue(2))));
}
"""


def viewer_state(full: ArraySpec, source: str, name: str) -> dict[str, Any]:
    """The state that shows the newest index of an image in its middle.

    full: level 0 of the virtual array, without axes that separate images. source: the URL of the group.
    """
    sizes = dict(zip(full.axes, full.shape, strict=True))
    shown = [axis for axis in (*_SPATIAL, TIME) if axis in sizes]
    dimensions: dict[str, list[Any]] = {}
    position: list[float] = []
    for axis in shown:
        at = full.axes.index(axis)
        factor, unit = _SI.get(full.units[at], (1.0, ""))
        dimensions[_NAMES.get(axis, axis)] = [abs(full.scale[at]) * factor if unit else 1.0, unit]
        # Positions of OME-Zarr are those of the middles of pixels, and the array may begin elsewhere than at 0.
        origin = full.translation[at] / abs(full.scale[at]) if unit and full.scale[at] else 0.0
        last = sizes[axis] - 1
        is_newest = axis == (TIME if TIME in sizes else Z)
        position.append(origin + (last if is_newest else last // 2))
    return {
        "dimensions": dimensions,
        "position": position,
        "crossSectionScale": 1.0,
        "layers": _layers(full, source, name, sizes),
        "layout": "xy",
        "prefetch": False,
        "concurrentDownloads": CONCURRENT_DOWNLOADS,
        "showAxisLines": False,
    }


def state_url(client: str, state: dict[str, Any]) -> str:
    """The address of a client that shows a state."""
    return f"{client}#!{quote(json.dumps(state, separators=(',', ':')))}"


def _layers(full: ArraySpec, source: str, name: str, sizes: dict[str, int]) -> Sequence[dict[str, Any]]:
    layer: dict[str, Any] = {"type": "image", "source": f"{source}|zarr3:", "blend": "additive", "opacity": 1}
    if SAMPLE in sizes:
        colours = {"channelDimensions": {"c^": [1, ""]}, "shader": _COLOUR_SHADER}
        return [{**layer, **colours, "name": name}]
    count = sizes.get(CHANNEL, 1)
    channels = omero_channels(full, count, full.labels.get(CHANNEL, ()), is_rgb=False)
    layers = []
    for number, channel in enumerate(channels[:MAX_LAYERS]):
        window = channel["window"]
        own: dict[str, Any] = {"shader": _CHANNEL_SHADER.format(**window, color=channel["color"])}
        if CHANNEL in sizes:
            own |= {"localDimensions": {"c'": [1, ""]}, "localPosition": [number]}
        label = name if count == 1 else f"{name} {channel['label']}"
        layers.append({**layer, **own, "name": label})
    return layers
