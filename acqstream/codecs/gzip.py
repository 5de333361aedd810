"""gzip: RFC 1952 members, or an RFC 1950 zlib stream, around deflate."""

from __future__ import annotations

from typing import cast

from isal import isal_zlib

from acqstream.codecs.sizes import Data, Decompressor, check_end
from acqstream.errors import CorruptDataset

_ERROR = cast("type[Exception]", isal_zlib.error)  # its stub calls the class an instance
_GZIP_BITS = 31  # window bits as zlib counts them: 15, and 16 for the gzip framing
_ZLIB_BITS = 15
_MAGIC = b"\x1f\x8b"
_STEP_BYTES = 4096  # of further members
_DEFAULT_LEVEL = 2
_BEST_LEVEL = 3  # of the library; its ratio is about that of zlib's 6


def encode(data: Data, level: int = -1, *, zlib: bool = False) -> bytes:
    """One member, or one zlib stream. level as zlib counts, -1 to 9; all above 3 is as 3."""
    own_level = _DEFAULT_LEVEL if level < 0 else min(level, _BEST_LEVEL)
    return isal_zlib.compress(data, own_level, _ZLIB_BITS if zlib else _GZIP_BITS)


def decode(data: Data, size: int) -> bytes:
    """The decoded members, or the decoded zlib stream, of `size` bytes. The first two bytes tell them apart.

    Raises CorruptDataset.
    """
    decoded, stream = _decoded(data, size)
    check_end("gzip", stream, len(decoded), size)
    return decoded


def decode_at_most(data: Data, max_size: int) -> bytes:
    """As `decode`, for data of unknown length, at most max_size bytes. Raises CorruptDataset."""
    decoded, stream = _decoded(data, max_size)
    if len(decoded) > max_size:
        raise CorruptDataset(f"gzip: holds more than {max_size} bytes")
    check_end("gzip", stream, len(decoded), len(decoded))
    return decoded


def _decoded(data: Data, size: int) -> tuple[bytes, Decompressor]:
    """At most size + 1 decoded bytes, and the decompressor of the last member."""
    bits = _GZIP_BITS if bytes(data[:2]) == _MAGIC else _ZLIB_BITS
    view = memoryview(data)
    parts: list[bytes] = []
    at = decoded_bytes = 0
    step = len(view)
    while True:
        stream = isal_zlib.decompressobj(bits)
        while not stream.eof and at < len(view) and decoded_bytes <= size:
            try:
                part = stream.decompress(view[at : at + step], size - decoded_bytes + 1)
            except _ERROR as error:
                raise CorruptDataset(f"gzip: {error}") from error
            parts.append(part)
            decoded_bytes += len(part)
            at = min(at + step, len(view))
        at -= len(stream.unused_data)
        # Readers differ in whether they take further members; none takes anything else.
        is_last = not stream.eof or decoded_bytes > size or bytes(view[at : at + 2]) != _MAGIC
        if is_last or bits != _GZIP_BITS:
            break
        step = _STEP_BYTES  # the library copies what follows a member: all of it, for each of a million empty ones
    if stream.eof and at < len(view) and not stream.unused_data and decoded_bytes <= size:
        raise CorruptDataset(f"gzip: {len(view) - at} bytes after the end of the stream")
    return parts[0] if len(parts) == 1 else b"".join(parts), stream
