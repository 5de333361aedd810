"""Writes one dataset past 4 GiB for real, and reads every frame back through independent software.

FOLDER must not exist; it takes 8 MiB a frame and is removed at the end. Readers: ndstorage, tifffile, and the Java
reference library (java, javac, and mvn to fetch it). Exit code 0 only if the dataset rolled over and every reader
found every frame, pixels and metadata, equal to what was sent.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ndstorage
import tifffile

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for acqstream, and for the Java reader of the tests

from acqstream.log.log import Log
from acqstream.model.acquisition_spec import AcquisitionSpec
from acqstream.model.frame_header import FrameHeader, pixel_type_of
from acqstream.model.metadata import frame_metadata
from acqstream.simulate import pattern
from acqstream.storage.page_memory import PageMemory
from tests.oracles import java_reader

SHAPE = (2048, 2048)
MEMORY_BYTES = 2**28
TIMEOUT_S = 900.0
METADATA_TAG = 51123
Found = tuple[int, str, Any]  # frame number, SHA-256 of the pixels, metadata


def sent(number: int) -> Found:
    pixels = pattern.frame(number, SHAPE, "uint16")
    return number, hashlib.sha256(pixels.data).hexdigest(), {"number": number, "Axes": {"time": number}}


def write(folder: Path, frames: int) -> None:
    kind = pixel_type_of("<u2", SHAPE)
    spec = AcquisitionSpec(dataset_id=f"{0:032x}", name="big")
    with Log(folder, spec, memory=PageMemory(MEMORY_BYTES).view) as log:
        for number in range(frames):
            text = frame_metadata({"number": number}, {"time": number})
            header = FrameHeader(number, kind, *SHAPE, {"time": number}, text)
            log.append(header, pattern.frame(number, SHAPE, "uint16"), timeout_s=TIMEOUT_S)


def stacks_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.tif"), key=lambda path: (len(path.name), path.name))


def read_with_ndstorage(folder: Path) -> Iterator[Found]:
    with contextlib.redirect_stdout(io.StringIO()):
        dataset = ndstorage.Dataset(str(folder))
    for axes in dataset.get_image_coordinates_list():
        yield axes["time"], hashlib.sha256(dataset.read_image(**axes)).hexdigest(), dataset.read_metadata(**axes)
    dataset.close()


def read_with_tifffile(folder: Path) -> Iterator[Found]:
    """The page chains of all stacks; a frame's number is its place in them."""
    number = 0
    for path in stacks_of(folder):
        with tifffile.TiffFile(path) as stack:
            for page in stack.pages:
                assert isinstance(page, tifffile.TiffPage)
                yield number, hashlib.sha256(page.asarray().data).hexdigest(), page.tags[METADATA_TAG].value
                number += 1


def read_with_java(folder: Path) -> Iterator[Found]:
    with tempfile.TemporaryDirectory() as classes:
        dataset = java_reader.read([folder], Path(classes), timeout_s=TIMEOUT_S)[folder]
    print(dataset.error, end="")
    for image in dataset.images:
        yield image["axes"]["time"], image["sha256"], image["metadata"]


def check(folder: Path, frames: int, *, with_java: bool) -> bool:
    """Write the dataset and tell whether everything is right with it."""
    write(folder, frames)
    stacks = stacks_of(folder)
    print(*(f"{path.name}: {path.stat().st_size:,} bytes" for path in stacks), sep="\n", flush=True)
    expected = {number: sent(number) for number in range(frames)}
    wrong = len(stacks) < 2
    for read in (read_with_ndstorage, read_with_tifffile, *([read_with_java] if with_java else [])):
        found = {values[0]: values for values in read(folder)}
        bad = sorted(number for number in expected | found if found.get(number) != expected.get(number))
        print(f"{read.__name__}: {len(found)} of {frames} frames; missing or different: {bad or 'none'}", flush=True)
        wrong = wrong or bool(bad)
    print(f"{'WRONG' if wrong else 'all equal'}; {len(stacks)} stack files, at least 2 are needed")
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the dataset")
    parser.add_argument("--frames", type=int, default=600, help="of 8 MiB each (default 600: 5 GB, two stacks)")
    parser.add_argument("--without-java", action="store_true", help="leave the Java reference library out")
    arguments = parser.parse_args()
    if arguments.folder.exists():
        parser.error(f"{arguments.folder} exists already")
    try:
        return 0 if check(arguments.folder, arguments.frames, with_java=not arguments.without_java) else 1
    finally:
        shutil.rmtree(arguments.folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
