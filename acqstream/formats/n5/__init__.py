"""N5: arrays cut into blocks, a file each, in nested folders. File-system specification 4.0.0."""

from __future__ import annotations

from pathlib import Path

from acqstream.errors import UnknownFormat
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.n5.array import N5Array, open_levels
from acqstream.formats.n5.bdv_xml import is_bdv_xml, read_xml
from acqstream.formats.n5.check import check
from acqstream.formats.n5.folders import SUFFIX, array_folder, container_of
from acqstream.formats.n5.options import N5Options, parse_options
from acqstream.formats.n5.plan import plan
from acqstream.formats.n5.space import Attributes
from acqstream.formats.n5.writer import create, encode_bytes


def _detect(path: Path) -> bool:
    return is_bdv_xml(path) or array_folder(path) is not None


def _open(path: Path) -> list[N5Array]:
    folder, fallback = _place(path)
    return open_levels(folder, fallback)


def _folder(path: Path) -> Path:
    return container_of(_place(path)[0])


def _place(path: Path) -> tuple[Path, Attributes]:
    """The folder that is meant, and what is known of it besides."""
    fallback: Attributes = {}
    if is_bdv_xml(path):
        path, fallback = read_xml(path)
    folder = array_folder(path)
    if folder is None:
        raise UnknownFormat(f"{path}: no N5 container here")
    return folder, fallback


FORMAT: ChunkFormat[N5Options] = ChunkFormat(
    name="n5",
    suffix=SUFFIX,
    looked_for="attributes.json with n5 or dimensions and blockSize, a folder *.n5, or an XML file for bdv.n5",
    byte_order=">",
    grows=True,
    detect=_detect,
    folder=_folder,
    open=_open,
    parse_options=parse_options,
    plan=plan,
    encode_bytes=encode_bytes,
    create=create,
    check=check,
    needs_distances=lambda options: options.layout == "bdv",  # its XML file
)
