"""libtiff, which most programs use, reads our stacks and has nothing to say but that it does not know one tag."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.log.make_frames import Frame, frame_of, mixed_frames, write_log
from tests.log.read_back import stack_paths

pytestmark = pytest.mark.oracle
UNKNOWN_TAG = "Unknown field with tag 51123 (0xc7b3) encountered"

CASES: dict[str, list[Frame]] = {
    "mixed": mixed_frames(9),
    "rgb": [frame_of(number, (20, 31, 3), "|u1") for number in range(3)],
    "uint8": [frame_of(number, (701, 403), "|u1") for number in range(2)],
    "odd": [frame_of(number, (3, 5), "|u1", metadata={"text": "x" * number}) for number in range(5)],
}


def bundled_library() -> ctypes.CDLL:
    """The libtiff that comes with Pillow."""
    pil = pytest.importorskip("PIL.Image")
    found = list(Path(pil.__file__).parents[1].glob("pillow.libs/libtiff*.so*"))
    if not found:
        pytest.skip("this Pillow brings no libtiff")
    return ctypes.CDLL(str(found[0]))


class LibTiff:
    """The few calls that are needed, with what the library says collected."""

    def __init__(self) -> None:
        self._library = bundled_library()
        self.said: list[str] = []
        handler = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)
        self._handler = handler(self._note)  # kept: the library calls it
        self._format = ctypes.CDLL(None).vsnprintf
        for kind in ("Warning", "Error"):
            setter = getattr(self._library, f"TIFFSet{kind}Handler")
            setter.restype, setter.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
            setter(ctypes.cast(self._handler, ctypes.c_void_p))
        self._library.TIFFOpen.restype = ctypes.c_void_p
        self._library.TIFFOpen.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        self._library.TIFFReadEncodedStrip.restype = ctypes.c_ssize_t
        self._library.TIFFReadEncodedStrip.argtypes = [
            ctypes.c_void_p,
            ctypes.c_uint32,
            ctypes.c_char_p,
            ctypes.c_ssize_t,
        ]
        for name in ("TIFFReadDirectory", "TIFFClose"):
            getattr(self._library, name).argtypes = [ctypes.c_void_p]

    def _note(self, _module: bytes | None, form: bytes, arguments: int) -> None:
        buffer = ctypes.create_string_buffer(1000)
        self._format(buffer, ctypes.c_size_t(1000), ctypes.c_char_p(form), ctypes.c_void_p(arguments))
        self.said.append(buffer.value.decode())

    def strips(self, path: Path, lengths: list[int]) -> list[bytes]:
        """The pixels of every page, which have these lengths in bytes."""
        tiff = self._library.TIFFOpen(str(path).encode(), b"rc")  # c: strips as they are in the file
        assert tiff, self.said
        strips = []
        for length in lengths:
            buffer = ctypes.create_string_buffer(length + 1)
            assert self._library.TIFFReadEncodedStrip(tiff, 0, buffer, length + 1) == length
            strips.append(buffer.raw[:length])
            more = self._library.TIFFReadDirectory(tiff)
        assert not more, "more pages than frames"
        self._library.TIFFClose(tiff)
        return strips

    def close(self) -> None:
        for kind in ("Warning", "Error"):
            getattr(self._library, f"TIFFSet{kind}Handler")(None)


@pytest.fixture
def libtiff() -> Iterator[LibTiff]:
    library = LibTiff()
    yield library
    library.close()


@pytest.mark.parametrize("case", CASES)
def test_libtiff_reads_every_page_and_warns_only_of_the_tag(tmp_path: Path, case: str, libtiff: LibTiff) -> None:
    frames = CASES[case]
    write_log(tmp_path / "cells", frames)
    (path,) = stack_paths(tmp_path / "cells")
    strips = libtiff.strips(path, [frame.image.nbytes for frame in frames])
    for frame, strip in zip(frames, strips, strict=True):
        assert np.array_equal(np.frombuffer(strip, frame.image.dtype).reshape(frame.image.shape), frame.image)
    assert set(libtiff.said) <= {UNKNOWN_TAG}  # newer versions do not even say that


def test_what_libtiff_says_is_heard(tmp_path: Path, libtiff: LibTiff) -> None:
    (tmp_path / "bad.tif").write_bytes(b"no TIFF file")
    with pytest.raises(AssertionError, match="bad magic number"):
        libtiff.strips(tmp_path / "bad.tif", [1])


@pytest.mark.parametrize("case", CASES)
def test_tiffinfo_warns_only_of_the_tag(tmp_path: Path, case: str) -> None:
    if shutil.which("tiffinfo") is None:
        pytest.skip("tiffinfo is not installed")
    write_log(tmp_path / "cells", CASES[case])
    (path,) = stack_paths(tmp_path / "cells")
    told = subprocess.run(["tiffinfo", "-D", str(path)], capture_output=True, text=True, check=True)
    assert told.stdout.count("TIFF Directory at offset") + told.stdout.count("=== TIFF directory") >= len(CASES[case])
    lines = [line for line in told.stderr.splitlines() if line.strip()]
    assert [line for line in lines if "51123" not in line] == []
