"""WKW: cubes of voxels in files of 32^3 blocks along a Morton curve, as webKNOSSOS keeps its datasets.

Specification: webknossos-wrap, format description version 1; the layout of datasets as in webKNOSSOS and its library.
Read: raw, LZ4 and LZ4-HC cubes, all ten voxel types, any number of channels, blocks and cubes up to 128 a side,
datasets with any layers and magnifications, single layers and folders of cubes. Written: blocks of 32, raw in place or
LZ4 a cube at a time. Not read: magnifications that lie outside the dataset's folder, layers of other formats.
Publish point: the shapes in `acqstream-array.json`, the bounding box in `datasource-properties.json`.
"""

from __future__ import annotations

from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.wkw.foreign import check, container_of, is_wkw, open_array
from acqstream.formats.wkw.layout import create_layout, plan
from acqstream.formats.wkw.metadata import WkwOptions, parse_options

FORMAT: ChunkFormat[WkwOptions] = ChunkFormat(
    name="wkw",
    looked_for="datasource-properties.json with WKW layers, header.wkw",
    detect=is_wkw,
    folder=container_of,
    open=open_array,
    parse_options=parse_options,
    plan=plan,
    layout=create_layout,
    check=check,
    grows_picture=True,
)
