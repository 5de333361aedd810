"""Files of other programs that people open by mistake: one sentence on what they are, in place of a list of formats."""

from __future__ import annotations

from acqstream.errors import DatasetError, StorageError
from acqstream.storage.stores.data_path import ReadPlace

_HEAD_BYTES = 16
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_KINDS = (  # first bytes, what it is
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, which h5py opens"),
    (b"ZISRAWFILE", "a CZI file of ZEISS, which Fiji opens"),
    (b"\xda\xce\xbe\x0a", "an ND2 file of Nikon, which Fiji opens"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"PK\x03\x04", "a ZIP archive: unpack it first"),
)


def other_file(place: ReadPlace) -> str:
    """What a file is, by its first bytes; empty for a folder, and for a file of no known kind."""
    try:
        file = place.open()
    except (DatasetError, StorageError):  # a folder, or what cannot be read: the error says what was looked for
        return ""
    try:
        head = file.read(0, _HEAD_BYTES)
    except StorageError:
        return ""
    finally:
        file.close()
    if head.startswith(_TIFF):
        kind = "an OME-TIFF" if ".ome." in place.name.lower() else "a TIFF file that is no NDTiff stack"
        return f"{kind}; Fiji and tifffile open it (`acqstream export` writes such files)"
    return next((kind for start, kind in _KINDS if head.startswith(start)), "")
