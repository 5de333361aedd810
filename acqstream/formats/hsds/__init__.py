"""HSDS: the object storage schema for HDF5 of the HDF Group, as its server keeps it in a folder.

Read: schema v1 and v2; chunked, contiguous and compact datasets, and those by reference; blosc-1 and zlib with shuffle.
Written: schema v2, chunks with pixels. Publish point: our note states a shape after its chunks are stored; documents of
the server follow, and state complete chunks only.
"""

from __future__ import annotations

from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.hsds.foreign import check, detect, folder_of, open_array
from acqstream.formats.hsds.layout import create_layout, plan
from acqstream.formats.hsds.metadata import HsdsOptions, parse_options

FORMAT: ChunkFormat[HsdsOptions] = ChunkFormat(
    name="hsds",
    looked_for="a bucket of HSDS with .domain.json, or a domain or dataset in it",
    detect=detect,
    folder=folder_of,
    open=open_array,
    parse_options=parse_options,
    plan=plan,
    layout=create_layout,
    check=check,
    grows_picture=True,
    names_inside=True,
    is_by_reference=lambda options: options.pixels == "reference",
    options_of_copies={"pixels": "copy"},
)
