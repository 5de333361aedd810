"""Requests: what is understood, what is refused and how it is named, and that nothing else can happen."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.errors import FrameRefused, ProtocolError
from acqstream.model.acquisition_spec import AcquisitionSpec, AxisSpec, FrameHint, TileSpec
from acqstream.model.frame_header import FrameHeader, PixelType
from acqstream.model.view_spec import ViewSpec
from acqstream.protocol.encoding import Encoding, decode_header, encode_header
from acqstream.protocol.frame_batch import Frame, FrameBatch
from acqstream.protocol.requests import Close, Hello, Open, Patch, Ping, Skip, Stop, Stored, parse_request

DS = "b0e1"
FRAME = {"t": "frame", "ds": DS, "n": 7, "dt": "<u2", "sh": [2, 3], "ax": {"time": 0}}
OPEN = {"t": "open", "ds": DS, "name": "cells"}


def header(
    pixel_type: PixelType,
    metadata: bytes,
    checksum: int | None = None,
    time_ns: int | None = None,
    metadata_checksum: int | None = None,
) -> FrameHeader:
    return FrameHeader(7, pixel_type, 2, 3, {"time": 0}, metadata, checksum, time_ns, b'{"time":0}', metadata_checksum)


UNDERSTOOD: dict[str, tuple[dict, object]] = {
    "stop": ({"t": "stop", "name": "cells"}, Stop("cells")),
    "hello": ({"t": "hello", "v": 1, "client": {"name": "x"}}, Hello(1, {"name": "x"})),
    "short hello": ({"t": "hello", "v": 1}, Hello(1, {})),
    "open": (OPEN, Open(AcquisitionSpec(dataset_id=DS, name="cells"))),
    "full open": (
        {
            **OPEN,
            "summary": {"a": [1.5, None]},
            "frame": {"dt": "|u1", "sh": [4, 5, 3]},
            "axes": [{"name": "z", "size": 5, "labels": ["a"]}, {"name": "t"}],
            "expect": 10,
            "durability": "close",
            "duplicates": "replace",
            "on_exists": "number",
            "resume": True,
            "mirrors": ["null", "null"],
            "news": 1,
        },
        Open(
            AcquisitionSpec(
                dataset_id=DS,
                name="cells",
                summary={"a": [1.5, None]},
                frame=FrameHint("|u1", (4, 5, 3)),
                axes=(AxisSpec("z", 5, labels=("a",)), AxisSpec("t")),
                expect=10,
                durability="close",
                replace_duplicates=True,
                number_if_taken=True,
                resume=True,
                views=(ViewSpec("null"),),
                default_mirrors=False,
            )
        ),
    ),
    "open with seconds": (
        {**OPEN, "durability": 2},
        Open(AcquisitionSpec(dataset_id=DS, name="cells", durability=2.0)),
    ),
    "frame": (
        FRAME,
        Frame(DS, header(PixelType("<u2", 1, 16), b'{"Axes":{"time":0}}')),
    ),
    "full frame": (
        {**FRAME, "bits": 12, "tns": 5, "meta": {"a": "µ"}, "sum": {"xxh3": "00000000000000ff"}},
        Frame(DS, header(PixelType("<u2", 1, 12), b'{"a":"\\u00b5","time_ns":5,"Axes":{"time":0}}', 255, 5)),
    ),
    "encoded metadata": (
        {**FRAME, "meta": '{"a": 1.50}', "msum": {"xxh3": "00000000000000fe"}},
        Frame(DS, header(PixelType("<u2", 1, 16), b'{"a": 1.50,"Axes":{"time":0}}', metadata_checksum=254)),
    ),
    "axes and time in the metadata": (
        {**FRAME, "meta": {"Axes": {"time": 9}, "a": 1, "time_ns": -7}},
        Frame(DS, header(PixelType("<u2", 1, 16), b'{"a":1,"time_ns":-7,"Axes":{"time":0}}', time_ns=-7)),
    ),
    "two times": (
        {**FRAME, "meta": {"time_ns": "noon"}, "tns": 6},
        Frame(DS, header(PixelType("<u2", 1, 16), b'{"time_ns":6,"Axes":{"time":0}}', time_ns=6)),
    ),
    "rgb frame": (
        {**FRAME, "dt": "|u1", "sh": [2, 3, 3]},
        Frame(DS, header(PixelType("|u1", 3, 8), b'{"Axes":{"time":0}}')),
    ),
    "skip": ({"t": "skip", "ds": DS, "n": 3, "count": 2, "reason": "x"}, Skip(DS, 3, 2, "x")),
    "short skip": ({"t": "skip", "ds": DS, "n": 3}, Skip(DS, 3, 1, "")),
    "patch": ({"t": "patch", "ds": DS, "display": {"a": 1}}, Patch(DS, None, {"a": 1})),
    "close": ({"t": "close", "ds": DS, "n": 4, "status": "error", "reason": "r"}, Close(DS, 4, "error", "r")),
    "short close": ({"t": "close", "ds": DS, "n": 4}, Close(DS, 4, "completed", "")),
    "ping": ({"t": "ping"}, Ping(None)),
    "open, tiles": (
        {**OPEN, "tiles": {"overlap": [0, 9], "levels": "auto", "new": 1}},
        Open(
            AcquisitionSpec(
                dataset_id=DS,
                name="cells",
                tiles=TileSpec((0, 9)),
                replace_duplicates=True,
                views=(ViewSpec("pyramid"),),
            )
        ),
    ),
    "open, tiles once": (
        {**OPEN, "tiles": {"overlap": [4, 9], "levels": 0, "wait_s": 2}, "duplicates": "error"},
        Open(AcquisitionSpec(dataset_id=DS, name="cells", tiles=TileSpec((4, 9), 0, 2.0))),
    ),
    "ping of one": ({"t": "ping", "ds": DS}, Ping(DS)),
    "ping with a count": ({"t": "ping", "ds": DS, "n": 7}, Ping(DS, 7)),
    "stored": ({"t": "stored", "ds": DS}, Stored(DS, 0)),
    "stored, further": ({"t": "stored", "ds": DS, "at": 77}, Stored(DS, 77)),
}


@pytest.mark.parametrize(("fields", "expected"), UNDERSTOOD.values(), ids=UNDERSTOOD)
@pytest.mark.parametrize("encoding", Encoding)
def test_requests_are_understood(fields, expected, encoding):
    decoded, _ = decode_header(encode_header(fields, encoding))
    assert parse_request(decoded) == expected


REFUSED = [
    ({}, "bad_header", "message type"),
    ({"t": 7}, "bad_header", "message type"),
    ({"t": ["frame"]}, "bad_header", "message type"),
    ({"t": "film"}, "bad_header", "message type"),
    ({"t": "hello"}, "bad_header", "'v'"),
    ({"t": "stored", "ds": DS, "at": -1}, "bad_header", "'at'"),
    ({"t": "stored", "at": 0}, "bad_header", "'ds'"),
    ({"t": "hello", "v": 2}, "bad_version", "version 2"),
    ({"t": "hello", "v": 1, "client": []}, "bad_header", "'client'"),
    ({**OPEN, "ds": "x y z"}, "bad_header", "'ds'"),
    ({**OPEN, "name": 5}, "bad_header", "'name'"),
    ({**OPEN, "summary": []}, "bad_header", "'summary'"),
    ({**OPEN, "summary": {"a": b"raw"}}, "bad_header", "'summary'"),
    ({**OPEN, "summary": {"a": float("nan")}}, "bad_header", "'summary'"),
    ({**OPEN, "frame": {"dt": "<f4", "sh": [2, 3]}}, "dtype_unsupported", "'frame'"),
    ({**OPEN, "frame": 3}, "bad_header", "'frame'"),
    ({**OPEN, "axes": [3]}, "bad_header", "'axes'"),
    ({**OPEN, "axes": [{"name": "a b"}]}, "bad_header", "a b"),
    ({**OPEN, "expect": -1}, "bad_header", "'expect'"),
    ({**OPEN, "durability": 0}, "bad_header", "'durability'"),
    ({**OPEN, "durability": True}, "bad_header", "'durability'"),
    ({**OPEN, "resume": "yes"}, "bad_header", "'resume'"),
    ({**OPEN, "resume": 1}, "bad_header", "'resume'"),
    ({**OPEN, "axes": [{"name": "z"}, {"name": "t"}, {"name": "z"}]}, "bad_header", "'z' is declared twice"),
    ({**OPEN, "duplicates": "keep"}, "bad_header", "'duplicates'"),
    ({**OPEN, "on_exists": 3}, "bad_header", "'on_exists'"),
    ({**OPEN, "mirrors": [["null"], 3, None]}, "bad_header", "is not a name of a mirror"),
    ({**OPEN, "mirrors": ["../n5"]}, "bad_header", "is not a name of a mirror"),
    ({**OPEN, "mirrors": [{"name": "n5"}]}, "bad_header", "has no 'format'"),
    ({**OPEN, "mirrors": [{"format": "n5", "name": "../a"}]}, "bad_header", "is not a name of a mirror"),
    (
        {**OPEN, "mirrors": [{"format": "n5", "name": "null"}, "null", {"format": "n5", "name": "null"}]},
        "bad_header",
        "two",
    ),
    ({**OPEN, "mirrors": [{"format": "n5", "level": float("nan")}]}, "bad_header", "JSON"),
    ({**OPEN, "mirrors": [{"format": "n5", "note": "x" * 5000}]}, "bad_header", "at most 4096"),
    ({**OPEN, "mirrors": "null"}, "bad_header", "'mirrors' must be a list"),
    ({**OPEN, "mirrors": ["null"] * 17}, "bad_header", "at most 16"),
    ({**OPEN, "tiles": {}}, "bad_header", "'tiles': overlap None"),
    ({**OPEN, "tiles": [4, 4]}, "bad_header", "'tiles': must be"),
    ({**OPEN, "tiles": {"overlap": 4}}, "bad_header", "two numbers"),
    ({**OPEN, "tiles": {"overlap": [4, -1]}}, "bad_header", "overlap -1"),
    ({**OPEN, "tiles": {"overlap": [4.0, 4]}}, "bad_header", "overlap 4.0"),
    ({**OPEN, "tiles": {"overlap": [65536, 4]}}, "bad_header", "from 0 to 65535"),
    ({**OPEN, "tiles": {"overlap": [4, 4], "levels": 17}}, "bad_header", "levels 17"),
    ({**OPEN, "tiles": {"overlap": [4, 4], "levels": "many"}}, "bad_header", "levels 'many'"),
    ({**OPEN, "tiles": {"overlap": [4, 4], "wait_s": float("nan")}}, "bad_header", "wait_s nan"),
    ({**OPEN, "tiles": {"overlap": [4, 4], "wait_s": -1}}, "bad_header", "wait_s -1"),
    (
        {**OPEN, "frame": {"dt": "<u2", "sh": [9, 5]}, "tiles": {"overlap": [9, 4]}},
        "bad_header",
        r"\[9, 5\] must be larger",
    ),
    ({**FRAME, "ds": None}, "bad_header", "'ds'"),
    ({**FRAME, "n": -1}, "bad_header", "'n'"),
    ({**FRAME, "n": True}, "bad_header", "'n'"),
    ({**FRAME, "n": 1.0}, "bad_header", "'n'"),
    ({"t": "skip", "ds": DS, "n": 0, "count": 0}, "bad_header", "'count'"),
    ({"t": "skip", "ds": DS, "n": 0, "count": 2**48}, "bad_header", "'count'"),
    ({"t": "patch", "ds": DS}, "bad_header", "summary"),
    ({"t": "close", "ds": DS, "n": 0, "status": "done"}, "bad_header", "'status'"),
    ({"t": "ping", "ds": "?"}, "bad_header", "'ds'"),
]


@pytest.mark.parametrize(("fields", "code", "text"), REFUSED)
def test_requests_are_refused_by_name(fields, code, text):
    with pytest.raises(ProtocolError, match=text) as info:
        parse_request(fields)
    assert info.value.code == code


REFUSED_LATER = [
    {"t": "patch", "ds": DS, "summary": {"a": b"raw"}},
    {"t": "patch", "ds": DS, "display": {"a": float("nan")}},
    {"t": "skip", "ds": DS, "n": 0, "reason": "\ud800"},
    {"t": "close", "ds": DS, "n": 0, "reason": "\ud800"},
]


@pytest.mark.parametrize("fields", REFUSED_LATER)
def test_what_cannot_be_stored_or_answered_is_refused_at_the_door(fields):
    with pytest.raises(ProtocolError):
        parse_request(fields)


REFUSED_FRAMES = [
    ({"dt": 5}, "bad_header"),
    ({"sh": "2x3"}, "bad_header"),
    ({"sh": [1, 2, 3, 4, 5]}, "bad_header"),
    ({"dt": ">u2"}, "dtype_unsupported"),
    ({"dt": "<f4"}, "dtype_unsupported"),
    ({"sh": [2]}, "dtype_unsupported"),
    ({"sh": [2, 0]}, "dtype_unsupported"),
    ({"sh": [2, -3]}, "dtype_unsupported"),
    ({"sh": [2, 2.0]}, "bad_header"),
    ({"sh": [2, [3]]}, "bad_header"),
    ({"sh": [2, 3, 3]}, "dtype_unsupported"),
    ({"bits": 9}, "dtype_unsupported"),
    ({"ax": None}, "bad_header"),
    ({"ax": {"z": 1.5}}, "bad_header"),
    ({"ax": {"z": True}}, "bad_header"),
    ({"ax": {str(i): i for i in range(20)}}, "bad_header"),
    ({"meta": {"a": b"x"}}, "bad_header"),
    ({"meta": [1]}, "bad_header"),
    ({"meta": {"a": float("inf")}}, "bad_header"),
    *(
        ({"meta": text}, "bad_header")
        for text in (
            *('{"a":1e999}', '{"a":NaN}', '{"a":"\\ud800"}', '{"a":1,"a":2}', '{"a":{"b":1,"b":1}}', '{"a":"µ"}'),
            *("{}", " {}", '{"a":1} ', "[1]", '{"a":1', '{"Axes":{}}', '{"\\u0041xes":1}', '{"time_ns":5}', "x" * 9),
            *(b'{"a":"\xff"}', b"{", '{"a":%s}' % ("[" * 200 + "]" * 200)),
        )
    ),
    ({"meta": '{"time_ns":"noon"}', "tns": 5}, "bad_header"),
    ({"msum": "00"}, "bad_header"),
    ({"msum": {"xxh3": "00"}}, "bad_header"),
    ({"tns": 2**63}, "bad_header"),
    ({"sum": {"xxh3": "12"}}, "bad_header"),
    ({"sum": {"xxh3": "zz" * 8}}, "bad_header"),
    ({"sum": 7}, "bad_header"),
    ({"tns": "now"}, "bad_header"),
]


@pytest.mark.parametrize(("change", "code"), REFUSED_FRAMES)
def test_a_bad_frame_is_named_by_its_number(change, code):
    with pytest.raises(FrameRefused) as info:
        parse_request({**FRAME, **change})
    assert (info.value.number, info.value.code) == (7, code)


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=6)
    | st.binary(max_size=3)
    | st.sampled_from(["frame", "<u2", "|u1", DS, "completed", 7, 1, 16]),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=4), children, max_size=4),
    max_leaves=8,
)
NAMES = sorted({name for fields, _ in UNDERSTOOD.values() for name in fields})


@given(st.sampled_from([fields for fields, _ in UNDERSTOOD.values()]), st.dictionaries(st.sampled_from(NAMES), JUNK))
def test_no_fields_raise_anything_else(fields, changes):
    try:
        parse_request({**fields, **changes})
    except (ProtocolError, FrameRefused):
        return


@given(st.sampled_from([encode_header(fields, e) for fields, _ in UNDERSTOOD.values() for e in Encoding]), st.data())
def test_no_damaged_header_raises_anything_else(raw, data):
    damaged = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        parse_request(decode_header(bytes(damaged))[0])
    except (ProtocolError, FrameRefused):
        return


def test_mirrors_have_names_and_settings() -> None:
    gzip = {"format": "n5", "compression": "gzip", "blocks": [64, 128, 128]}
    small = {"format": "n5", "name": "small", "levels": 1}
    request = parse_request({**OPEN, "mirrors": ["n5", gzip, "null", small, {"format": "n5"}]})
    assert isinstance(request, Open)
    assert request.spec.views == (
        ViewSpec("n5"),
        ViewSpec("n5", gzip, "n5-2"),
        ViewSpec("null"),
        ViewSpec("n5", small, "small"),
        ViewSpec("n5", {"format": "n5"}, "n5-3"),
    )
    assert not request.spec.default_mirrors


# --- numbers that equal an integer and are none: 64.0 == 64 and True == 1, in every cache and every dict

NUMBERED: dict[str, dict[str, Any]] = {
    "hello": {"t": "hello", "v": 1},
    "open": {
        **OPEN,
        "frame": {"dt": "<u2", "sh": [64, 1]},
        "axes": [{"name": "z", "size": 1}],
        "expect": 1,
        "epoch": 1,
        "tiles": {"overlap": [1, 0], "levels": 1},
    },
    "frame": {**FRAME, "n": 1, "sh": [64, 1], "bits": 16, "tns": 1, "ax": {"time": 1}, "mem": [1, 0]},
    "frames": {
        "t": "frames",
        "ds": DS,
        "n": 1,
        "count": 2,
        "dt": "<u2",
        "sh": [64, 1],
        "bits": 16,
        "ax": {"time": [0, 1], "z": {"start": 1, "step": 1}},
        "tns": [0, 1],
        "mem": [1, 0],
    },
    "skip": {"t": "skip", "ds": DS, "n": 1, "count": 1},
    "close": {"t": "close", "ds": DS, "n": 1},
}


def numbers_in(value: object, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the integers are."""
    if type(value) is int:
        yield place
    elif isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers_in(inner, (*place, key))


def with_value(fields: dict[str, Any], place: tuple[Any, ...], value: object) -> dict[str, Any]:
    changed: Any = copy.deepcopy(fields)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return changed


PLACES = [(name, place) for name, fields in NUMBERED.items() for place in numbers_in(fields)]


def refused_in(request: object) -> FrameRefused | None:
    """The first frame of a batch that is refused."""
    headers = request.headers if isinstance(request, FrameBatch) else ()
    return next((header for header in headers if isinstance(header, FrameRefused)), None)


@pytest.mark.parametrize(("name", "place"), PLACES, ids=[f"{name}-{place}" for name, place in PLACES])
def test_a_number_that_only_equals_an_integer_is_refused(name: str, place: tuple[Any, ...]) -> None:
    good = NUMBERED[name]
    value: Any = good
    for key in place:
        value = value[key]
    assert refused_in(parse_request(good)) is None  # what it is made of is in all caches now
    for other in (float(value), *([bool(value)] if value in (0, 1) else []), float("1e300"), 10**400):
        try:
            refused: ProtocolError | FrameRefused | None = refused_in(parse_request(with_value(good, place, other)))
        except (ProtocolError, FrameRefused) as error:
            refused = error
        assert refused is not None, f"{other!r} at {place} was taken"
        assert refused.code == "bad_header" or type(other) is int, refused


@pytest.mark.parametrize("digits", ["-000000000000001", "+000000000000001", " 00000000000000f", "0_00000000000000"])
def test_a_checksum_has_hex_digits_only(digits: str) -> None:
    for fields in (
        {**FRAME, "sum": {"xxh3": digits}},
        {**NUMBERED["frames"], "sums": [digits, digits]},
        {**NUMBERED["frames"], "sums": 2 * digits},
    ):
        try:
            refused = refused_in(parse_request(fields))
        except FrameRefused as error:
            refused = error
        assert refused is not None
        assert refused.code == "bad_header"
