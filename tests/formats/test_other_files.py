"""What people open by mistake is named in one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile

import acqstream
from acqstream.errors import UnknownFormat
from acqstream.storage.files.small_file import parse_json


@pytest.mark.parametrize(
    ("name", "start", "said"),
    [
        ("a.h5", b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
        ("a.czi", b"ZISRAWFILE", "a CZI file"),
        ("a.nd2", b"\xda\xce\xbe\x0a", "an ND2 file"),
        ("a.zip", b"PK\x03\x04", "a ZIP archive"),
    ],
)
def test_first_bytes(tmp_path: Path, name: str, start: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(start + bytes(100))
    with pytest.raises(UnknownFormat) as raised:
        acqstream.open(tmp_path / name)
    text = str(raised.value)
    assert f"{tmp_path / name} is no dataset but {said}" in text
    assert "Looked for" not in text


@pytest.mark.parametrize(("name", "said"), [("a.ome.tif", "an OME-TIFF;"), ("b.tif", "a TIFF file that is no NDTiff")])
def test_tiff(tmp_path: Path, name: str, said: str) -> None:
    tifffile.imwrite(tmp_path / name, np.zeros((5, 8, 8), np.uint16), ome=".ome." in name)
    with pytest.raises(UnknownFormat, match=f"is no dataset but {said}"):
        acqstream.open(tmp_path / name)


@pytest.mark.parametrize("content", [b"", b"some text"])
def test_others_are_told_what_was_looked_for(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(UnknownFormat, match="Looked for ndtiff"):
        acqstream.open(tmp_path / "a.txt")


def test_zeros_in_place_of_a_document() -> None:
    with pytest.raises(acqstream.CorruptDataset, match="300 bytes of zeros, as a power cut leaves them"):
        parse_json(bytes(300), "acqstream.json")
