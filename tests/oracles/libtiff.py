"""The libtiff that Pillow's wheels bring along, called directly: every page of a file, and every complaint.

Reading a file through it is what most TIFF software does. Its words matter: an application may print each warning.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

IMAGE_WIDTH, IMAGE_LENGTH, BITS_PER_SAMPLE, SAMPLES_PER_PIXEL, METADATA = 256, 257, 258, 277, 51123

# void handler(const char *module, const char *format, va_list): on every common platform a va_list argument is passed
# as one pointer, and only handed on to vsnprintf here.
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class TiffPage:
    """pixels: (Y, X) or (Y, X, 3). metadata: the text of tag 51123 as the library hands it out."""

    pixels: NDArray[Any]
    metadata: bytes


@dataclass(frozen=True, slots=True)
class TiffFile:
    """pages: up to the end of the chain, or to the first one that cannot be read."""

    pages: list[TiffPage]
    warnings: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """The shared library inside the installed Pillow; None where its build has none of its own."""
    try:
        from PIL import _imaging
    except ImportError:
        return None
    packages = Path(_imaging.__file__).parents[1]
    for pattern in ("pillow.libs/libtiff-*", "PIL/.dylibs/libtiff*"):  # Linux, macOS
        for path in sorted(packages.glob(pattern)):
            return _declare(ctypes.CDLL(str(path)))
    return None


def _declare(lib: ctypes.CDLL) -> ctypes.CDLL:
    lib.TIFFOpen.restype = ctypes.c_void_p
    lib.TIFFOpen.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    lib.TIFFClose.argtypes = [ctypes.c_void_p]
    lib.TIFFClose.restype = None
    lib.TIFFReadDirectory.argtypes = [ctypes.c_void_p]
    lib.TIFFNumberOfStrips.argtypes = [ctypes.c_void_p]
    lib.TIFFNumberOfStrips.restype = ctypes.c_uint32
    lib.TIFFGetField.argtypes = [ctypes.c_void_p, ctypes.c_uint32]  # and pointers
    lib.TIFFReadEncodedStrip.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_ssize_t]
    lib.TIFFReadEncodedStrip.restype = ctypes.c_ssize_t
    for name in ("TIFFSetWarningHandler", "TIFFSetErrorHandler"):
        getattr(lib, name).argtypes = [ctypes.c_void_p]
        getattr(lib, name).restype = ctypes.c_void_p
    return lib


def read(path: Path) -> TiffFile:
    """All pages of a file, as far as the library gets."""
    lib = library()
    assert lib is not None
    file = TiffFile([])
    with _listening(lib, "TIFFSetWarningHandler", file.warnings), _listening(lib, "TIFFSetErrorHandler", file.errors):
        handle = lib.TIFFOpen(str(path).encode(), b"r")
        if not handle:
            return file
        try:
            file.pages.append(_page(lib, handle))
            while lib.TIFFReadDirectory(handle) == 1:
                file.pages.append(_page(lib, handle))
        finally:
            lib.TIFFClose(handle)
    return file


def _page(lib: ctypes.CDLL, handle: int) -> TiffPage:
    width, height = (_number(lib, handle, tag, ctypes.c_uint32) for tag in (IMAGE_WIDTH, IMAGE_LENGTH))
    bits, samples = (_number(lib, handle, tag, ctypes.c_uint16) for tag in (BITS_PER_SAMPLE, SAMPLES_PER_PIXEL))
    shape = (height, width) if samples == 1 else (height, width, samples)
    pixels = np.empty(shape, dtype=f"uint{bits}")
    end = 0
    for strip in range(lib.TIFFNumberOfStrips(handle)):  # one in the file; the library chops it where that is large
        read = lib.TIFFReadEncodedStrip(handle, strip, pixels.ctypes.data + end, pixels.nbytes - end)
        assert read > 0, f"strip {strip} cannot be read"
        end += read
    assert end == pixels.nbytes
    count, text = ctypes.c_uint32(), ctypes.c_void_p()
    assert lib.TIFFGetField(handle, METADATA, ctypes.byref(count), ctypes.byref(text)) == 1
    assert text.value is not None
    return TiffPage(pixels, ctypes.string_at(text.value))


def _number(lib: ctypes.CDLL, handle: int, tag: int, kind: type[ctypes.c_uint16 | ctypes.c_uint32]) -> int:
    value = kind()
    assert lib.TIFFGetField(handle, tag, ctypes.byref(value)) == 1
    return int(value.value)


@contextmanager
def _listening(lib: ctypes.CDLL, setter: str, words: list[str]) -> Iterator[None]:
    """Collect what the library has to say; Pillow's own handler, if it has set one, is put back."""
    format_text = ctypes.CDLL(None).vsnprintf
    format_text.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p]

    def note(module: bytes | None, template: bytes, arguments: int) -> None:
        buffer = ctypes.create_string_buffer(1000)
        format_text(buffer, len(buffer), template, arguments)
        words.append(f"{(module or b'').decode()}: {buffer.value.decode(errors='replace')}")

    handler = _HANDLER(note)
    before = getattr(lib, setter)(ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield
    finally:
        getattr(lib, setter)(before)
