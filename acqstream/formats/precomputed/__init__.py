"""Neuroglancer precomputed volumes. Source: the public volume format, with its sharded format.

Read: volumes with a file for each chunk, plain or gzip, or in shards; raw, png, jpeg and compressed segmentation; all
data types. Written: a file for each chunk, or shards; raw, png, jpeg or compressed segmentation.
Publish point: `info` of each volume, then the shapes in `acqstream-volume.json`: all that these name is stored.
"""

from __future__ import annotations

from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.precomputed.foreign import check, detect, folder_of, open_array
from acqstream.formats.precomputed.layout import plan
from acqstream.formats.precomputed.metadata import PrecomputedOptions, parse_options
from acqstream.formats.precomputed.shard_layout import create_layout

FORMAT: ChunkFormat[PrecomputedOptions] = ChunkFormat(
    name="precomputed",
    looked_for="info with type, data_type and scales",
    detect=detect,
    folder=folder_of,
    open=open_array,
    parse_options=parse_options,
    plan=plan,
    layout=create_layout,
    check=check,
    is_lossy=lambda options: options.encoding == "jpeg",
)
