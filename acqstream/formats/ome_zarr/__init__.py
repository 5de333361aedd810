"""OME-Zarr: images as Zarr arrays with resolution levels. Zarr v3 core, OME-NGFF 0.5."""

from __future__ import annotations

from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.ome_zarr.foreign import check, detect, folder_of, open_array
from acqstream.formats.ome_zarr.layout import create_layout
from acqstream.formats.ome_zarr.plan import OmeZarrOptions, parse_options, plan

FORMAT: ChunkFormat[OmeZarrOptions] = ChunkFormat(
    name="ome-zarr",
    looked_for="zarr.json, .zgroup or .zarray of an image, an array or a collection",
    detect=detect,
    folder=folder_of,
    open=open_array,
    parse_options=parse_options,
    plan=plan,
    layout=create_layout,
    check=check,
    grows_picture=True,
)
