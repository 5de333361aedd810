"""Routes below /data/: files of containers, and virtual datasets of frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from acqstream.errors import CorruptDataset, DatasetError, UnknownFormat
from acqstream.frames.frame_pixels import PixelSource
from acqstream.model.dataset_name import MAX_FOLDERS
from acqstream.web.answers import (
    BYTES,
    FIRST_BYTES,
    IMMUTABLE,
    JSON,
    NO_CACHE,
    Body,
    FilePart,
    absent,
    content_tag,
    matches_tag,
    send,
    tag_of,
)
from acqstream.web.data.data_address import (
    PREFIX,
    BadAddress,
    DataOptions,
    name_and_options,
    parse_options,
    path_parts,
    source_of,
)
from acqstream.web.data.dataset_shelf import DatasetShelf
from acqstream.web.data.virtual_array import VIRTUAL_LAYOUTS, ServedChunk
from acqstream.web.data.virtual_dataset import ServedArray, ServedDataset
from acqstream.web.file_routes import send_file, send_listing
from acqstream.web.web_context import CONTEXT, WebContext, plain_path

_XML = "application/xml"
_AT_ONCE_BYTES = 2**20  # of a chunk that is made where it is found: the number of requests bounds those in memory


def data_routes(context: WebContext) -> Iterator[web.RouteDef]:
    """The routes of this group."""
    del context
    yield web.get(PREFIX + "{rest:.*}", serve_data)


async def serve_data(request: web.Request) -> web.StreamResponse:
    """Answer a request for an object of a dataset."""
    context = request.app[CONTEXT]
    try:
        parts = path_parts(plain_path(request))
    except BadAddress:
        return absent()
    with ExitStack() as lent:  # the dataset, so that it is not closed before the answer was sent
        if source := source_of(parts):
            lent.enter_context(context.loads.answering(source, is_chunk=not _is_json(parts[-1])))
        # One step in another thread: handing a request to it and back costs as much as reading a piece of a frame.
        found = await context.run(_find, context, parts, request.headers.get("If-None-Match"), lent)
        if isinstance(found, Body):
            return await send(request, found)
        if found is None:
            return absent()
        if isinstance(found, FoundFile):
            return await send_file(request, found.folder, found.key)
        if found.names:
            return await send_listing(request, found.names)
        with await context.gate.in_memory.take(found.memory_bytes):
            return await send(request, await context.run(_body, found))


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a container, which may be missing."""

    folder: Path
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoundObject:
    """An object of a virtual dataset: a document, the names in a folder, or a chunk with the frames it is made of."""

    key: str
    tag: str
    cache: str
    document: bytes | None = None
    names: tuple[str, ...] = ()
    array: ServedArray | None = None
    place: ServedChunk | None = None
    source: PixelSource | None = None

    part: tuple[bytes, FilePart] | None = None

    @property
    def content_type(self) -> str:
        """The Content-Type of the answer."""
        if self.document is None:
            return BYTES
        return _XML if self.key.endswith(".xml") else JSON if _is_json(self.key) else BYTES

    @property
    def memory_bytes(self) -> int:
        """Memory that the answer takes; 0 for a frame that goes out from its file."""
        if self.array is None or self.place is None or self.part is not None:
            return 0
        return self.array.virtual.layout.plan.levels[self.place.level].chunk_bytes


def find_object(
    shelf: DatasetShelf, dataset: ServedDataset, options: DataOptions, layout: str, key: str
) -> FoundObject | None:
    """The object at a key of a virtual dataset; None if it is missing now. Reads no pixels."""
    try:
        array = dataset.array(layout, options)
    except CorruptDataset:
        raise
    except DatasetError as error:  # removed or replaced: it is opened again
        shelf.drop(dataset)
        raise UnknownFormat(str(error)) from error
    if array is None:
        return None
    content = array.virtual.document(key)
    if content is not None:
        return FoundObject(key, content_tag(content), NO_CACHE, document=content)
    place = array.virtual.chunk(key)
    if place is None:
        names = array.virtual.folder(key)
        return None if names is None else FoundObject(key, "", NO_CACHE, names=tuple(names))
    source = array.find(place)
    if source is None:
        return None
    # A name may be deleted and given again: only an address with the identity of the dataset means one thing for ever.
    is_fixed = options.generation is not None and bool(options.identity)
    is_fixed = is_fixed and not _may_change_its_level(dataset, array, place, source)
    tag, cache = _chunk_tag(dataset, layout, array, place, source), IMMUTABLE if is_fixed else NO_CACHE
    part = _frame_part(array, place, source)
    return FoundObject(key, tag, cache, array=array, place=place, source=source, part=part)


def _may_change_its_level(dataset: ServedDataset, array: ServedArray, place: ServedChunk, source: PixelSource) -> bool:
    """Return True for a lower level of all frames of a mosaic: its means are rounded otherwise in the dataset's own
    levels, which take its place when they are complete. Those of fewer frames are always made of these frames.
    """
    is_lower = array.placed.mosaic is not None and place.level > 0
    return is_lower and (source.level > 0 or array.placed.count == dataset.count)


def _chunk_tag(dataset: ServedDataset, layout: str, array: ServedArray, place: ServedChunk, source: PixelSource) -> str:
    """A tag without reading pixels: a frame that was written again lies elsewhere."""
    spec = array.virtual.layout.plan.levels[place.level]
    extent = (place.y, place.x, place.samples, spec.chunk_shape, source.level)
    return tag_of(dataset.content_identity, layout, place.level, place.position, extent, *source.identity)


def _find(
    context: WebContext, parts: tuple[str, ...], shown_tag: str | None, lent: ExitStack
) -> Body | FoundObject | FoundFile | None:
    """What a request asks for, at once as a body if that takes at most _AT_ONCE_BYTES; None if it is missing.

    shown_tag: the If-None-Match header. lent: gets the dataset that the object is read from.
    """
    try:
        folder, options, rest = _find_folder(context, parts)
    except BadAddress:
        return None
    if folder is None:
        return None
    has_chunks = context.folders.has_chunks(folder)
    if rest and rest[0] in VIRTUAL_LAYOUTS and not has_chunks:
        dataset = lent.enter_context(context.shelf.borrow(folder))
        found = find_object(context.shelf, dataset, options, rest[0], "/".join(rest[1:]))
        if found is None or found.names:
            return found
        if matches_tag(shown_tag, found.tag):  # nothing is read for it
            return Body([], found.tag, found.content_type, found.cache)
        return _body(found) if found.memory_bytes <= _AT_ONCE_BYTES else found
    return FoundFile(folder, tuple(rest)) if has_chunks and options == DataOptions() else None


def _body(found: FoundObject) -> Body:
    """A document, or the bytes of a chunk: those of the file where they are the same, else read and encoded."""
    if found.document is not None:
        return Body([found.document], found.tag, found.content_type, found.cache)
    array, place, source = found.array, found.place, found.source
    assert array is not None
    assert place is not None
    assert source is not None
    if found.part is not None:
        head, part = found.part
        file, offset, count = part.file, part.offset, part.count
        start = file.read(offset, min(count, FIRST_BYTES))
        rest = FilePart(file, offset + len(start), count - len(start))
        return Body([head + start], found.tag, BYTES, found.cache, rest)
    pixels = array.pixels.read(source, place, array.factors)
    return Body(list(array.virtual.encode(place, pixels)), found.tag, BYTES, found.cache)


def _frame_part(array: ServedArray, place: ServedChunk, source: PixelSource) -> tuple[bytes, FilePart] | None:
    """The header of a chunk and the part of a stack file that has its items; None if they are not the same.

    Raises CorruptDataset for a frame beyond the end of its file.
    """
    span = source.span()
    if span is None:
        return None
    file, frame, byte_order = span
    head = array.virtual.frame_head(place, frame.shape)
    mosaic = array.placed.mosaic
    is_whole = mosaic is None or (mosaic.y.step, mosaic.x.step) == frame.shape[:2]
    is_same_order = frame.pixel_type.numpy_dtype.itemsize == 1 or byte_order == array.virtual.layout.byte_order
    if head is None or not is_whole or not is_same_order:
        return None
    end = frame.pixels + frame.payload_bytes
    if not file.reaches(end):  # before a length is announced
        raise CorruptDataset(f"a frame ends at {end}, beyond the end of the file", path=str(file.path))
    return head, FilePart(file, frame.pixels, frame.payload_bytes)


def _is_json(key: str) -> bool:
    name = key.rpartition("/")[2]
    return name.endswith(".json") or name == "info" or name.startswith(".z")


def _find_folder(context: WebContext, parts: Sequence[str]) -> tuple[Path | None, DataOptions, Sequence[str]]:
    """The folder that the first parts of an address name, its options, and the other parts. Raises BadAddress.

    No part has a slash, and no folder with datasets in it is served: the first parts that name one are all.
    """
    for end in range(1, min(len(parts), MAX_FOLDERS + 1) + 1):
        part = "/".join(parts[:end])
        folder = context.folders.find(part)
        if folder is not None:  # foreign names may have an @
            return folder, DataOptions(), parts[end:]
        name, text = name_and_options(part)
        folder = context.folders.find(name) if text else None
        if folder is not None:
            return folder, parse_options(text), parts[end:]
    return None, DataOptions(), ()
