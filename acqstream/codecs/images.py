"""PNG and JPEG images as arrays. They take Pillow, which is imported late; encoding PNG takes the codecs alone.

Sources: PNG specification (ISO/IEC 15948; rows and filters: clause 9), JPEG (ITU-T T.81, annex B). The size of an image
is read from its header and compared before anything is decoded, so that it takes no more memory than its pixels should.
Pillow reads 16-bit color of a PNG as 8 bits; that is read here without a loss, slowly where a row has the filters
Average or Paeth.
"""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from typing import Any

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from acqstream.codecs import gzip
from acqstream.codecs.sizes import Data
from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.extras import install_command

_NONE, _SUB, _UP, _AVERAGE, _PAETH = range(5)  # filters of PNG; _UP: differences to the row above


PNG_CHANNELS, JPEG_CHANNELS = (1, 2, 3, 4), (1, 3)
MAX_JPEG_SIDE = 65_500  # pixels, of libjpeg

_PNG_LEVEL = 2  # 0 to 3
_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_PNG_HEADER = struct.Struct(">IIBBBBB")  # width, height, bit depth, color type, compression, filter, interlace
_CHANNELS_OF_COLOR = {0: 1, 2: 3, 4: 2, 6: 4}  # color type: gray, RGB, gray and alpha, RGB and alpha
_COLOR_OF_CHANNELS = {count: color for color, count in _CHANNELS_OF_COLOR.items()}
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})  # JPEG markers with the size of the image
_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})  # JPEG markers without a length


def encode_png(pixels: NDArray[np.generic]) -> bytes:
    """A PNG of an array (height, width, channels) of uint8 or uint16 with 1 to 4 channels."""
    height, width, channels = pixels.shape
    rows = np.ascontiguousarray(pixels, pixels.dtype.newbyteorder(">")).view(np.uint8).reshape(height, -1)
    lines = np.empty((height, 1 + rows.shape[1]), np.uint8)
    lines[:, 0] = _UP
    lines[0, 1:] = rows[0]
    np.subtract(rows[1:], rows[:-1], out=lines[1:, 1:])  # modulo 256, as the filter is
    header = _PNG_HEADER.pack(width, height, 8 * pixels.dtype.itemsize, _COLOR_OF_CHANNELS[channels], 0, 0, 0)
    data = isal_zlib.compress(lines.data, _PNG_LEVEL, 15)
    return _PNG_MAGIC + _png_part(b"IHDR", header) + _png_part(b"IDAT", data) + _png_part(b"IEND", b"")


def decode_png(data: Data, pixels: int, channels: int, dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
    """The pixels of an image, in rows, as an array (pixels, channels) of dtype (uint8 or uint16).

    Raises CorruptDataset if it has another number of pixels, channels or bits, UnsupportedFeature without Pillow, and
    for interlaced color of 16 bits. That is not left to Pillow, which would read 8 bits of it.
    """
    content = bytes(data)
    if not content.startswith(_PNG_MAGIC) or content[12:16] != b"IHDR" or len(content) < 33:
        raise CorruptDataset("png: it does not begin with the header of an image")
    width, height, bits, color, _, _, interlace = _PNG_HEADER.unpack_from(content, 16)
    stated = (_CHANNELS_OF_COLOR.get(color), bits)
    if stated != (channels, 8 * dtype.itemsize):
        text = f"png: color type {color} with {bits} bits, expected {channels} channels of {8 * dtype.itemsize} bits"
        raise CorruptDataset(text)
    _check_pixels("png", width, height, pixels)
    if bits == 16 and channels > 1:
        if interlace:
            raise UnsupportedFeature(f"png: {channels} channels of 16 bits in an interlaced image")
        rows = _decode_rows(content, height, 2 * width * channels, 2 * channels)
        return rows.view(">u2").astype(dtype).reshape(pixels, channels)
    return _decode("PNG", content, pixels, channels).astype(dtype)


def encode_jpeg(pixels: NDArray[np.generic], quality: int) -> bytes:
    """A JPEG of an array (height, width, channels) of uint8 with 1 or 3 channels; quality 1 to 100, as libjpeg has it.

    Colours keep their resolution. Raises UnsupportedFeature without Pillow.
    """
    image = load_pillow("JPEG").fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    content = BytesIO()
    image.save(content, "JPEG", quality=quality, subsampling=0)
    return content.getvalue()


def decode_jpeg(data: Data, pixels: int, channels: int) -> NDArray[np.generic]:
    """The pixels of an image, in rows, as an array (pixels, channels) of uint8. Raises as `decode_png`."""
    content = bytes(data)
    width, height, components = _jpeg_frame(content)
    if components != channels:
        raise CorruptDataset(f"jpeg: {components} components, expected {channels}")
    _check_pixels("jpeg", width, height, pixels)
    return _decode("JPEG", content, pixels, channels).astype(np.dtype(np.uint8))


def _png_part(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _jpeg_frame(data: bytes) -> tuple[int, int, int]:
    """Width, height and number of components. Raises CorruptDataset."""
    at = 2
    while data.startswith(b"\xff\xd8") and at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF or marker in _ALONE:
            at += 1 if marker == 0xFF else 2
            continue
        if marker in _FRAMES and at + 10 <= len(data):
            height, width, components = struct.unpack_from(">HHB", data, at + 5)  # after length and bits a sample
            return width, height, components
        (length,) = struct.unpack_from(">H", data, at + 2)
        at += 2 + max(2, length)
    raise CorruptDataset("jpeg: it has no header of an image")


def _check_pixels(codec: str, width: int, height: int, pixels: int) -> None:
    if width * height != pixels:
        raise CorruptDataset(f"{codec}: {width} x {height} pixels, expected {pixels} in all")


def load_pillow(kind: str) -> Any:
    """Pillow's module for images, for this kind of them. Raises UnsupportedFeature without Pillow."""
    try:
        from PIL import Image
    except ImportError as error:
        text = f"{kind.lower()} images take Pillow, which cannot be imported ({error}): {install_command('view')}"
        raise UnsupportedFeature(text) from error
    return Image


def _decode(kind: str, content: bytes, pixels: int, channels: int) -> NDArray[Any]:
    """Let Pillow decode an image of this size."""
    Image = load_pillow(kind)  # noqa: N806 - a module
    try:
        with Image.open(BytesIO(content), formats=[kind]) as image:
            width, height = image.size
            _check_pixels(kind.lower(), width, height, pixels)  # a second header may state another size
            decoded = np.asarray(image)
    except (
        OSError,
        SyntaxError,
        ValueError,
        EOFError,
        struct.error,
        zlib.error,
        Image.DecompressionBombError,
    ) as error:
        raise CorruptDataset(f"{kind.lower()}: {error!s:.200}") from error
    if decoded.size != pixels * channels:
        raise CorruptDataset(f"{kind.lower()}: {decoded.size} samples, expected {pixels * channels}")
    return decoded.reshape(pixels, channels)


def _decode_rows(content: bytes, height: int, row_bytes: int, pixel_bytes: int) -> NDArray[np.uint8]:
    """Samples as bytes (height, row_bytes). Raises CorruptDataset."""
    try:
        data = gzip.decode(_image_data(content), height * (1 + row_bytes))
    except CorruptDataset as error:
        raise CorruptDataset(f"png: {error}") from error
    lines = np.frombuffer(data, np.uint8).reshape(height, 1 + row_bytes)
    rows = np.empty((height, row_bytes), np.uint8)
    above = np.zeros(row_bytes, np.uint8)
    for line, row in zip(lines, rows, strict=True):
        row[:] = _unfiltered(int(line[0]), line[1:], above, pixel_bytes)
        above = row
    return rows


def _image_data(content: bytes) -> bytes:
    """The joined IDAT parts. Raises CorruptDataset for a part that is cut or whose checksum does not agree."""
    parts: list[bytes] = []
    at = len(_PNG_MAGIC)
    while at + 12 <= len(content):
        # A part: length, kind, content, checksum of kind and content.
        (length,) = struct.unpack_from(">I", content, at)
        kind, end = content[at + 4 : at + 8], at + 8 + length
        if end + 4 > len(content):
            break
        if struct.unpack_from(">I", content, end)[0] != zlib.crc32(content[at + 4 : end]):
            raise CorruptDataset(f"the checksum of a part {kind!r} does not agree")
        if kind == b"IEND":
            return b"".join(parts)
        if kind == b"IDAT":
            parts.append(content[at + 8 : end])
        at = end + 4
    raise CorruptDataset("it ends within a part")


def _unfiltered(kind: int, line: NDArray[np.uint8], above: NDArray[np.uint8], step: int) -> NDArray[np.uint8]:
    """A row; step is the bytes of a pixel. All sums are modulo 256."""
    if kind == _NONE:
        return line
    if kind == _SUB:
        return np.cumsum(line.reshape(-1, step), axis=0, dtype=np.uint8).reshape(-1)
    if kind == _UP:
        return line + above
    if kind not in (_AVERAGE, _PAETH):
        raise CorruptDataset(f"png: a row has the filter {kind}, expected 0 to 4")
    # Each byte depends on the one a pixel before: plain integers are faster than arrays here.
    source, upper = line.tolist(), [0] * step + above.tolist()
    found = [0] * step
    for at, value in enumerate(source):
        left, up = found[at], upper[at + step]
        if kind == _AVERAGE:
            found.append((value + (left + up) // 2) & 255)
            continue
        corner = upper[at]
        to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
        near = left if to_left <= to_up and to_left <= to_corner else up if to_up <= to_corner else corner
        found.append((value + near) & 255)
    return np.array(found[step:], np.uint8)
