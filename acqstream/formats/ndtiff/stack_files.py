"""The stack files of one folder, a bounded number of them open, and the bytes of frames in them by row of the index.

Source: the NDTiff file format, https://github.com/micro-manager/NDTiffStorage.

"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from acqstream.errors import CorruptDataset, StorageError, UnsupportedFeature
from acqstream.formats.ndtiff.frame_table import FrameTable
from acqstream.formats.ndtiff.pixels import RAW, StoredFrame, pixel_type_of_code, read_pixels
from acqstream.formats.ndtiff.stack_header import ByteOrder, byte_order_of, check_json_length, parse_json_object
from acqstream.storage.files.boundary import Boundary
from acqstream.storage.files.read_file import ReadFile

MAX_OPEN = 64  # descriptors are limited to 1024 per process on many systems


class StackFiles:
    """Open stack files by name; the least recently used one is closed when too many are open. Thread safe.

    check_in_place raises DatasetError if the folder was replaced since the index was opened. Called after each opening.
    """

    def __init__(self, folder: Path, check_in_place: Callable[[], None], boundary: Boundary) -> None:
        self._folder = folder
        self._boundary = boundary
        self._check_in_place = check_in_place
        self._open: OrderedDict[str, tuple[ReadFile, ByteOrder]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str) -> tuple[ReadFile, ByteOrder]:
        """The file and its byte order. Raises CorruptDataset if it is missing or no TIFF file.

        The file stays open as long as the caller holds it.
        """
        with self._lock:
            entry = self._open.get(name)
            if entry is None:
                entry = self._open[name] = self._open_file(name)
                if len(self._open) > MAX_OPEN:
                    self._open.popitem(last=False)
            elif len(self._open) > 1:
                self._open.move_to_end(name)
            return entry

    def close(self) -> None:
        """Give up all files."""
        with self._lock:
            self._open.clear()

    def _open_file(self, name: str) -> tuple[ReadFile, ByteOrder]:
        path = self._folder / name
        try:
            with self._boundary.inside():
                file = ReadFile(path)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise CorruptDataset("the index names this stack file, but it is missing", path=str(path)) from error
            raise
        self._check_in_place()
        return file, byte_order_of(file.read, str(path))


class FrameBytes:
    """Frames of a table, read from their stack files. Arrays belong to the caller. As thread safe as the table.

    All methods raise CorruptDataset or UnsupportedFeature for an entry that cannot be right, StorageError.
    """

    def __init__(self, table: FrameTable, stacks: StackFiles, index_path: Path) -> None:
        self._table = table
        self._stacks = stacks
        self._index_path = index_path

    def stack_name(self, row: int) -> str:
        """Name of the stack file that holds the frame."""
        return self._table.stack_names[self._table.stack(row)]

    def locate(self, row: int) -> StoredFrame:
        """Where and how the frame lies in its stack file."""
        pixels, width, height, code, compression, metadata, *_ = self._table.entry(row)
        pixel_type = pixel_type_of_code(code, self._index_path)
        return StoredFrame(pixel_type, height, width, compression, pixels, metadata)

    def read_pixels(self, row: int) -> NDArray[Any]:
        """The frame as a new array (Y, X), or (Y, X, 3) for RGB."""
        frame = self.locate(row)
        file, byte_order = self._file(row)
        return read_pixels(file, frame, byte_order)

    def read_rows(self, row: int, first: int, stop: int) -> NDArray[Any]:
        """The rows first .. stop - 1 of a frame's pixels. Raises IndexError outside the frame."""
        frame = self.locate(row)
        if not 0 <= first < stop <= frame.height:
            raise IndexError(f"rows {first} to {stop} of a frame of {frame.height}")
        if not frame.is_plain:  # compressed pixels have no place of their own in the file
            return self.read_pixels(row)[first:stop]
        # Rows lie back to back in C order: those that are asked for are a frame of their own.
        start = frame.pixels + first * frame.width * frame.pixel_type.pixel_bytes
        file, byte_order = self._file(row)
        return read_pixels(file, frame._replace(pixels=start, height=stop - first), byte_order)

    def read_metadata(self, row: int) -> dict[str, Any]:
        """The frame's metadata, empty if it has none. Raises CorruptDataset if they are not JSON."""
        path = self._file(row)[0].path
        return parse_json_object(self.metadata_bytes(row), str(path), int(self._table.numbers(row)["metadata_offset"]))

    def metadata_bytes(self, row: int) -> bytes:
        """The frame's metadata as it is stored."""
        numbers = self._table.numbers(row)
        file, _ = self._file(row)
        compression = int(numbers["metadata_compression"])
        if compression not in RAW:  # some writers put TIFF's code for none there
            raise UnsupportedFeature(f"{file.path}: metadata compression {compression} cannot be read; 0 can")
        offset, length = int(numbers["metadata_offset"]), int(numbers["metadata_length"])
        # Before the read: the index may be damaged, and the length may ask for any amount of memory.
        check_json_length(length, "metadata", str(file.path), offset)
        data = file.read(offset, length)
        if len(data) != length:
            text = f"metadata of {length} bytes end beyond the end of the file at {file.size()}"
            raise CorruptDataset(text, path=str(file.path), offset=offset)
        return data

    def _file(self, row: int) -> tuple[ReadFile, ByteOrder]:
        return self._stacks.get(self.stack_name(row))
