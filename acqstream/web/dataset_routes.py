"""Routes of the page about datasets: the list, what is in one, pictures of its frames, and notes on its run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from acqstream.arrays.level_layout import X, Y
from acqstream.client.daemon_requests import send_note
from acqstream.client.keys import port_keys
from acqstream.description.space import UM_BY_UNIT
from acqstream.errors import (
    AcqStreamError,
    AcquisitionRefused,
    ConfigError,
    DaemonUnavailable,
    FieldError,
    FrameNotFound,
)
from acqstream.formats.ndtiff.folders import read_notes
from acqstream.model.axes import AxisValue
from acqstream.model.run_note import PAGE, RunNote, new_note
from acqstream.monitor.daemon_watch import receipt_in
from acqstream.storage.files.boundary import Boundary
from acqstream.web.answers import Body, absent, refusal, send, send_json
from acqstream.web.data.dataset_shelf import DatasetShelf, ServedFolders
from acqstream.web.data.neuroglancer_state import PUBLIC_CLIENT
from acqstream.web.page.dataset_list import DatasetCatalog, DatasetPage, viewer_lines
from acqstream.web.page.page_texts import receipt_texts
from acqstream.web.page.picture_source import Crop, borrow_pictures
from acqstream.web.page_routes import PageState
from acqstream.web.previews import MAX_SIDE, MIN_SIDE, Preview, PreviewRequest
from acqstream.web.request_gate import GateClosed
from acqstream.web.web_context import CONTEXT, base_of

MAX_LISTED, USUALLY_LISTED = 200, 50  # datasets in an answer
MAX_SEARCH = 200  # characters
MAX_VALUES = 2000  # of an axis, in an answer
MAX_AXES = 16
NOTES_PATH = "/api/notes"
MAX_NOTES = 20  # in an answer
MAX_NOTE_BYTES = 16 * 1024  # of a request
NOTE_S = 5.0
FACTS_HEADER = "Acqstream-Picture"
MAX_VALUE_FRAMES = 6  # the page shows as many channels in one picture
_RESERVED = frozenset({"max", "low", "high", "auto", "crop"})
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_PLACE = re.compile(r"0|[1-9][0-9]{0,9}")


class _BadQuery(Exception):
    """A query that names no picture or pixel; the text has the reason."""


@dataclass(frozen=True, slots=True)
class PixelRequest:
    """A pixel (y, x) in each of some frames, which are named by all their axes."""

    y: int
    x: int
    frames: tuple[dict[str, AxisValue], ...]


def dataset_routes(state: PageState) -> Iterator[web.RouteDef]:
    """The routes of this group."""
    catalog, looking = DatasetCatalog(), asyncio.Lock()
    state.threads.submit(_look_ahead, catalog, state.folders)

    async def datasets(request: web.Request) -> web.StreamResponse:
        context, query = request.app[CONTEXT], request.query
        places = [query.get("offset", "0"), query.get("limit", str(USUALLY_LISTED))]
        words = query.get("search", "")
        if not all(map(_PLACE.fullmatch, places)) or not 0 < int(places[1]) <= MAX_LISTED or len(words) > MAX_SEARCH:
            text = f"offset is an integer, limit is 1 to {MAX_LISTED}, search has at most {MAX_SEARCH} characters"
            return refusal(400, text)

        def look() -> DatasetPage:
            return catalog.page(context.folders.all(), words, int(places[0]), int(places[1]))

        async with looking:  # no thread waits for another one's look
            found = await context.run(look)
        return await send_json(request, found.as_dict())

    async def dataset(request: web.Request, folder: Path) -> web.StreamResponse:
        context, name = request.app[CONTEXT], request.match_info["name"]
        described = await context.run(describe, context.shelf, folder)
        described["name"], path = name, str(folder.absolute())
        receipt = await context.run(receipt_in, folder) if described["format"] == "ndtiff" else None
        described["receipt"] = None if receipt is None else receipt_texts(receipt, path)
        client = "/neuroglancer/" if context.settings.neuroglancer is not None else PUBLIC_CLIENT
        lines = viewer_lines(name, described["format"], path, base_of(request), client)
        return await send_json(request, {**described, "lines": lines})

    async def preview(request: web.Request, folder: Path) -> web.StreamResponse:
        made = await state.previews.get(_asked(request, folder))
        body = Body([made.jpeg], made.tag, "image/jpeg")
        return await send(request, body, {FACTS_HEADER: facts_text(made)})

    async def values(request: web.Request, folder: Path) -> web.StreamResponse:
        context = request.app[CONTEXT]
        found = await context.run(stored_values, context.shelf, folder, _asked_values(request))
        return await send_json(request, found)

    async def notes(request: web.Request, folder: Path) -> web.StreamResponse:
        return await send_json(request, await request.app[CONTEXT].run(latest_notes, folder))

    sending = asyncio.Lock()

    async def add_note(request: web.Request) -> web.StreamResponse:
        if sending.locked():  # a note may wait for a disk, and one thread is for readers
            raise GateClosed
        async with sending:
            return await _add_note(request)

    yield web.get("/api/datasets", datasets)
    yield web.get("/api/datasets/{name}/notes", _of_folder(notes))
    yield web.post(NOTES_PATH, add_note)
    yield web.get("/api/datasets/{name}", _of_folder(dataset))
    yield web.get("/api/datasets/{name}/preview.jpg", _of_folder(preview))
    yield web.get("/api/datasets/{name}/values", _of_folder(values))


def _look_ahead(catalog: DatasetCatalog, folders: ServedFolders) -> None:
    """Take the first look at a large directory, which takes longest; what is wrong with it, an answer says."""
    with contextlib.suppress(AcqStreamError, OSError):
        catalog.page(folders.all(is_ahead=True), "", 0, USUALLY_LISTED)


def _of_folder(answer: Callable[[web.Request, Path], Awaitable[web.StreamResponse]]) -> _Handler:
    """The handler of a route about one dataset: `answer` gets its folder, and may raise _BadQuery."""

    async def handle(request: web.Request) -> web.StreamResponse:
        context = request.app[CONTEXT]
        folder = await context.run(context.folders.find, request.match_info["name"])
        if folder is None:
            return absent()
        try:
            return await answer(request, folder)
        except _BadQuery as error:
            return refusal(400, str(error))

    return handle


def describe(shelf: DatasetShelf, folder: Path) -> dict[str, Any]:
    """Axes, shape and channels of a dataset; reads files. Raises FrameNotFound before the first frame."""
    with borrow_pictures(shelf, folder) as source:
        shape, dtype, bits = source.shape()
        axes = {name: _values(values) for name, values in source.axes().items()}
        looks = [{"name": look.name, "color": look.color, "limits": look.limits} for look in source.looks().values()]
        known = {axis: source.spacing(axis) for axis in (*axes, Y, X)}
        (y, y_um), (x, x_um) = ((known[axis].step, UM_BY_UNIT.get(known[axis].unit)) for axis in (Y, X))
        return {
            "format": source.format,
            "count": source.count,
            "shape": shape,
            "dtype": dtype,
            "bits": bits,
            "pixel_um": None if y_um is None or x_um is None else (y * y_um, x * x_um),
            "distances": {axis: found for axis, found in known.items() if found.unit and axis in axes},
            "axes": axes,
            "channels": looks,
        }


def stored_values(shelf: DatasetShelf, folder: Path, asked: PixelRequest) -> dict[str, Any]:
    """The stored values of a pixel; reads one row of each frame. `values` is empty for a frame that is missing."""
    values: list[list[int | float]] = []
    with borrow_pictures(shelf, folder) as source:
        for frame in asked.frames:
            try:
                place = source.find(frame)
            except FrameNotFound:
                values.append([])
                continue
            values.append(source.value(place, asked.y, asked.x))
    return {"y": asked.y, "x": asked.x, "values": values}


def latest_notes(folder: Path) -> dict[str, Any]:
    """The last MAX_NOTES notes on a run, the newest first; reads a file. Raises StorageError, CorruptDataset."""
    with Boundary(folder, follows=False).inside():
        notes, _ = read_notes(folder)
    latest = [
        {"time_ms": one.time_ns // 10**6, "frame": one.frame, "source": one.source, "text": one.content}
        for one in reversed(notes[-MAX_NOTES:])
    ]
    return {"count": len(notes), "notes": latest}


async def _add_note(request: web.Request) -> web.Response:
    """Have the daemon store a note."""
    context = request.app[CONTEXT]
    settings, status = context.settings, context.feed.view.status
    if request.method != "POST":
        return refusal(405, "only POST")
    if status is None:
        return refusal(503, f"no daemon answers: {context.feed.view.why}")
    is_guarded = bool(settings.token) or settings.socket is not None
    if not (is_guarded or await context.run(_is_open, status.endpoint)):
        # Every user of the machine reaches this server, and only some of them the daemon.
        return refusal(403, "notes for this daemon need a page with a token: acqstream web --token-file FILE")
    try:
        name, note = await _asked_note(request)
        await context.run(send_note, name, note, settings.endpoint, timeout_s=NOTE_S)
    except (_BadQuery, ConfigError) as error:
        return refusal(400, str(error))
    except AcquisitionRefused as error:
        return refusal(404 if error.code == "unknown_ds" else 409, str(error))
    except DaemonUnavailable as error:
        return refusal(503, str(error))
    return web.Response(status=204)


def _is_open(endpoint: str) -> bool:
    """Return True for an endpoint that every user of this machine reaches without a key. Reads a small file."""
    return endpoint.startswith("tcp:") and port_keys(endpoint) is None


async def _asked_note(request: web.Request) -> tuple[str, RunNote]:
    """Raises _BadQuery."""
    if request.content_length is None or request.content_length > MAX_NOTE_BYTES:
        raise _BadQuery(f"a note is a JSON object of at most {MAX_NOTE_BYTES} bytes")
    try:
        async with asyncio.timeout(NOTE_S):
            asked = json.loads(await request.read())
    except (ValueError, RecursionError, TimeoutError) as error:
        raise _BadQuery("a note is a JSON object") from error
    if not isinstance(asked, dict) or not all(isinstance(asked.get(key), str) for key in ("name", "text")):
        raise _BadQuery("a note has 'name' of the run and 'text'")
    try:
        return asked["name"], new_note(asked["text"], PAGE)
    except FieldError as error:
        raise _BadQuery(str(error)) from error


def facts_text(preview: Preview) -> str:
    """What a picture shows, as JSON of ASCII characters for a header."""
    facts, place = preview.facts, preview.place
    return json.dumps(
        {
            "axes": dict(place.key),
            "number": place.number,
            "count": preview.count,
            "low": facts.low,
            "high": facts.high,
            "auto": [facts.auto_low, facts.auto_high],
            "histogram": facts.histogram,
            "histogram_end": facts.histogram_end,
            "saturated": facts.saturated,
            "steps": preview.steps,
            "start": preview.start,
        },
        separators=(",", ":"),
    )


def _values(values: Sequence[AxisValue]) -> dict[str, Any]:
    """Values of an axis; of a long one, the last ones."""
    return {"count": len(values), "values": list(values[-MAX_VALUES:])}


def _asked(request: web.Request, folder: Path) -> PreviewRequest:
    """Raises _BadQuery."""
    query = request.query
    axes = tuple(sorted((name, value) for name, value in query.items() if name not in _RESERVED))
    if len(axes) > MAX_AXES:
        raise _BadQuery(f"at most {MAX_AXES} axes")
    try:
        max_side = int(query.get("max", "1024"))
        limits = (float(query["low"]), float(query["high"])) if "low" in query or "high" in query else None
    except (ValueError, KeyError) as error:
        raise _BadQuery("max is an integer; low and high are numbers, both or none") from error
    if not MIN_SIDE <= max_side <= MAX_SIDE:
        raise _BadQuery(f"max must be from {MIN_SIDE} to {MAX_SIDE}")
    if limits is not None and not (all(map(math.isfinite, limits)) and limits[0] < limits[1]):
        raise _BadQuery("low must be less than high")
    return PreviewRequest(folder, axes, max_side, limits, "auto" in query, _crop(query.get("crop")))


def _crop(text: str | None) -> Crop | None:
    """Raises _BadQuery."""
    if text is None:
        return None
    places = text.split(",")
    if len(places) != 4 or not all(_PLACE.fullmatch(one) for one in places) or "0" in places[2:]:
        raise _BadQuery("crop is y,x,height,width in pixels: integers from 0 on, the last two from 1 on")
    y, x, height, width = map(int, places)
    return Crop((y, x), (height, width))


def _asked_values(request: web.Request) -> PixelRequest:
    """Raises _BadQuery."""
    query = request.query
    texts = query.getall("frame", [])
    if not 1 <= len(texts) <= MAX_VALUE_FRAMES:
        raise _BadQuery(f"from 1 to {MAX_VALUE_FRAMES} frames")
    places = [query.get(name, "") for name in ("y", "x")]
    if not all(_PLACE.fullmatch(one) for one in places):
        raise _BadQuery("y and x are integers from 0 on")
    return PixelRequest(int(places[0]), int(places[1]), tuple(map(_frame_axes, texts)))


def _frame_axes(text: str) -> dict[str, AxisValue]:
    """Raises _BadQuery."""
    try:
        axes = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _BadQuery("frame is a JSON object") from error
    if not isinstance(axes, dict) or len(axes) > MAX_AXES or not all(type(one) in (int, str) for one in axes.values()):
        raise _BadQuery(f"frame is a JSON object with the values of at most {MAX_AXES} axes: integers or texts")
    return axes
