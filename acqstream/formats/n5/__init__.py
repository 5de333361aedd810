"""N5: arrays cut into blocks, a file each, in nested folders. File-system specification 4.0.0."""

from __future__ import annotations

from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.n5.foreign import check, detect, folder_of, open_array
from acqstream.formats.n5.layout import create_layout, plan
from acqstream.formats.n5.member_folders import N5Options, parse_options

FORMAT: ChunkFormat[N5Options] = ChunkFormat(
    name="n5",
    looked_for="attributes.json with n5 or dimensions and blockSize, a folder *.n5, or an XML file for bdv.n5",
    detect=detect,
    folder=folder_of,
    open=open_array,
    parse_options=parse_options,
    plan=plan,
    layout=create_layout,
    check=check,
    grows_picture=True,
)
