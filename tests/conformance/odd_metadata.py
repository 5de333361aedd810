"""Odd metadata, as programs give them, and the JSON that is stored: the rule of docs/metadata.md, one case a line.

`given` is a function, as some values change, run out or may be asked once. `nulls` and `texts` are the counts that the
warnings are about. Those of `SUMMARIES` are for summaries, which may be larger than the metadata of a frame.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from acqstream.client.plain_values import MAX_DEPTH

NAIVE = datetime.datetime.fromisoformat("2026-11-28T01:02:03.000456")
BERLIN = datetime.timezone(datetime.timedelta(hours=1))
STAMP = "2026-11-28T01:02:03.123456789"


class Odd(NamedTuple):
    name: str
    given: Callable[[], Mapping[Any, Any]]
    expected: dict[str, Any]
    nulls: int = 0
    texts: int = 0


class Colour(enum.Enum):
    RED = "red"


class Gain(enum.IntEnum):
    HIGH = 2


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "wrong"


@dataclasses.dataclass
class Stage:
    x_um: float
    moved: datetime.date


class Point(NamedTuple):
    x: int
    y: int


class Model:
    """As pydantic's."""

    def model_dump(self, *, exclude_unset: bool) -> dict[str, Any]:
        return {"set_only": exclude_unset, "path": PurePosixPath("/x")}


class Thing:
    def __repr__(self) -> str:
        return "a thing"


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


class Broken(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        yield "a"
        raise OSError("the camera is gone")

    def __len__(self) -> int:
        return 2

    def __repr__(self) -> str:
        return "broken"


def circle() -> dict[str, Any]:
    value: dict[str, Any] = {"a": 1}
    value["again"] = [value]
    return value


def no_unit() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of numpy 2.5: spans without a unit will go
        return {"a": np.array(3, "m8[25ms]"), "b": np.timedelta64(5)}


def twice() -> dict[str, Any]:
    value: list[Any] = [()]
    return {"a": value, "b": [value, value]}


def time(text: str | int, kind: str, unit: str) -> Callable[[], Mapping[Any, Any]]:
    return lambda: {"a": np.array(text, kind).astype(f"{kind[:2]}[{unit}]")[()]}


def nested(levels: int, inmost: Any) -> Any:
    value = inmost
    for _ in range(levels):
        value = [value]
    return value


def masked() -> Any:
    return np.ma.masked_array([1, 2, 3], [False, True, False])


RECORDS = np.dtype([("x", "<i4"), ("label", "<U2")])

ODD_METADATA: list[Odd] = [
    Odd(
        "plain",
        lambda: {"a": 1, "b": [0.5, None, {"c": "d"}], "e": True},
        {"a": 1, "b": [0.5, None, {"c": "d"}], "e": True},
    ),
    Odd("empty", dict, {}),
    Odd("empty parts", lambda: {"": "", "a": {}, "b": [], "c": ()}, {"": "", "a": {}, "b": [], "c": []}),
    Odd(
        "numpy scalars",
        lambda: {"a": np.float32(0.5), "b": np.int64(-3), "c": np.bool_(True), "d": np.uint8(255)},
        {"a": 0.5, "b": -3, "c": True, "d": 255},
    ),
    Odd(
        "float limits",
        lambda: {"a": -0.0, "b": 5e-324, "c": 1.7976931348623157e308, "d": 0.1},
        {"a": -0.0, "b": 5e-324, "c": 1.7976931348623157e308, "d": 0.1},
    ),
    Odd("integer limits", lambda: {"a": 2**63 - 1, "b": -(2**63)}, {"a": 2**63 - 1, "b": -(2**63)}),
    Odd(
        "integers beyond 64 bits",
        lambda: {"a": 2**63, "b": np.uint64(2**64 - 1), "c": -(2**70)},
        {"a": str(2**63), "b": str(2**64 - 1), "c": str(-(2**70))},
        texts=3,
    ),
    Odd("an integer of 5,001 digits", lambda: {"a": 16**5000}, {"a": "0x1" + "0" * 5000}, texts=1),
    Odd("long double", lambda: {"a": np.longdouble(0.5), "b": np.longdouble("inf")}, {"a": 0.5, "b": None}, nulls=1),
    Odd(
        "NaN and infinities",
        lambda: {"a": float("nan"), "b": [float("inf"), 1.0], "c": np.float64("-inf"), "d": np.array([np.nan, 2])},
        {"a": None, "b": [None, 1.0], "c": None, "d": [None, 2.0]},
        nulls=4,
    ),
    Odd(
        "arrays",
        lambda: {"a": np.arange(3), "b": np.eye(2, dtype="u1"), "c": np.array(["x", "é"]), "d": np.zeros((0, 2))},
        {"a": [0, 1, 2], "b": [[1, 0], [0, 1]], "c": ["x", "é"], "d": []},
    ),
    Odd(
        "arrays without axes",
        lambda: {"a": np.array(3), "b": np.array("x"), "c": np.array(STAMP, "M8[ns]")},
        {"a": 3, "b": "x", "c": STAMP},
    ),
    Odd("an array of 600 values", lambda: {"a": np.arange(600)}, {"a": list(range(600))}),
    Odd(
        "an array backwards",
        lambda: {"a": np.arange(6, dtype=">i2").reshape(2, 3)[:, ::-1]},
        {"a": [[2, 1, 0], [5, 4, 3]]},
    ),
    Odd(
        "an array of objects",
        lambda: {"a": np.array([1, "x", None, PurePosixPath("/y")], dtype=object)},
        {"a": [1, "x", None, "/y"]},
    ),
    Odd("a masked array", lambda: {"a": masked(), "b": masked()[1]}, {"a": [1, None, 3], "b": None}, nulls=1),
    Odd(
        "records",
        lambda: {"a": np.array([(1, "A1"), (2, "A2")], RECORDS), "b": np.array([(3, "B")], RECORDS)[0]},
        {"a": [{"x": 1, "label": "A1"}, {"x": 2, "label": "A2"}], "b": {"x": 3, "label": "B"}},
    ),
    Odd(
        "datetime",
        lambda: {
            "a": NAIVE,
            "b": datetime.datetime(2026, 11, 28, tzinfo=BERLIN),
        },
        {"a": "2026-11-28T01:02:03.000456", "b": "2026-11-28T00:00:00+01:00"},
    ),
    Odd(
        "date and time",
        lambda: {"a": datetime.date(2026, 1, 2), "b": datetime.time(3, 4, 5)},
        {"a": "2026-01-02", "b": "03:04:05"},
    ),
    Odd(
        "timedelta",
        lambda: {"a": datetime.timedelta(milliseconds=1500), "b": datetime.timedelta(days=-1)},
        {"a": 1.5, "b": -86400.0},
    ),
    *(
        Odd(f"datetime64[{unit}]", time(STAMP, "M8[ns]", unit), {"a": text})
        for unit, text in {
            "Y": "2026",
            "M": "2026-11",
            "W": "2026-11-26",
            "D": "2026-11-28",
            "h": "2026-11-28T01",
            "m": "2026-11-28T01:02",
            "s": "2026-11-28T01:02:03",
            "ms": "2026-11-28T01:02:03.123",
            "us": "2026-11-28T01:02:03.123456",
            "ns": STAMP,
        }.items()
    ),
    *(
        Odd(f"datetime64[{unit}]", time(text, f"M8[{unit}]", unit), {"a": text})
        for unit, text in {
            "ps": "1970-01-02T00:00:00.123456789012",
            "fs": "1970-01-01T01:02:03.123456789012345",
            "as": "1970-01-01T00:00:03.123456789012345678",
        }.items()
    ),
    *(
        Odd(f"timedelta64[{unit}]", time(3, f"m8[{unit}]", unit), {"a": seconds})
        for unit, seconds in {
            "Y": 94670856.0,
            "M": 7889238.0,
            "W": 1814400.0,
            "D": 259200.0,
            "h": 10800.0,
            "m": 180.0,
            "s": 3.0,
            "ms": 0.003,
            "us": 3e-06,
            "ns": 3e-09,
            "ps": 3e-12,
            "fs": 3e-15,
            "as": 3e-18,
        }.items()
    ),
    Odd("25 ms steps, no unit", no_unit, {"a": 0.075, "b": 5.0}),
    Odd(
        "NaT",
        lambda: {
            "a": np.datetime64("NaT", "s"),
            "b": np.timedelta64("NaT", "s"),
            "c": np.array(["NaT", "2026-01-02"], "M8[D]"),
        },
        {"a": None, "b": None, "c": [None, "2026-01-02"]},
        nulls=3,
    ),
    Odd(
        "arrays of times",
        lambda: {"a": np.array([0, 1], "M8[ns]"), "b": np.array([500, 1], "m8[ms]")},
        {"a": ["1970-01-01T00:00:00.000000000", "1970-01-01T00:00:00.000000001"], "b": [0.5, 0.001]},
    ),
    Odd(
        "paths", lambda: {"a": PurePosixPath("/x/ü"), "b": PureWindowsPath("C:\\data")}, {"a": "/x/ü", "b": "C:\\data"}
    ),
    Odd("UUID", lambda: {"a": uuid.UUID(int=5)}, {"a": "00000000-0000-0000-0000-000000000005"}, texts=1),
    Odd(
        "Decimal",
        lambda: {"a": Decimal("0.10"), "b": Decimal("1E+400"), "c": Decimal("NaN")},
        {"a": "0.10", "b": "1E+400", "c": None},
        nulls=1,
        texts=2,
    ),
    Odd(
        "fractions and complex numbers",
        lambda: {"a": Fraction(1, 3), "b": 1 + 2j, "c": np.array([1j])},
        {"a": "1/3", "b": "(1+2j)", "c": ["1j"]},
        texts=3,
    ),
    Odd("enums", lambda: {"a": Colour.RED, "b": Gain.HIGH, Colour.RED: [Gain.HIGH]}, {"a": "red", "b": 2, "red": [2]}),
    Odd(
        "sets",
        lambda: {"a": {3, 1, 2}, "b": frozenset({"z", "é", "a"}), "c": {2, "x", None}},
        {"a": [1, 2, 3], "b": ["a", "z", "é"], "c": [None, 2, "x"]},
    ),
    Odd(
        "bytes",
        lambda: {"a": b"10x", "b": bytearray(b"\xff\x00"), "c": memoryview(b""), "d": np.bytes_(b"\xc3\xa9")},
        {"a": "10x", "b": "base64:/wA=", "c": "", "d": "é"},
        texts=4,
    ),
    Odd(
        "sequences",
        lambda: {
            "a": (1, (2,)),
            "b": range(2),
            "c": collections.deque([1]),
            "d": {"x": 1}.keys(),
            "e": {"x": 1}.values(),
        },
        {"a": [1, [2]], "b": [0, 1], "c": [1], "d": ["x"], "e": [1]},
    ),
    Odd(
        "mappings",
        lambda: collections.OrderedDict(a=MappingProxyType({"b": collections.Counter("xx")})),
        {"a": {"b": {"x": 2}}},
    ),
    Odd("a named tuple", lambda: {"a": Point(1, 2)}, {"a": [1, 2]}),
    Odd(
        "a dataclass", lambda: {"a": Stage(1.5, datetime.date(2026, 1, 2))}, {"a": {"x_um": 1.5, "moved": "2026-01-02"}}
    ),
    Odd("a pydantic object", lambda: {"a": Model()}, {"a": {"set_only": True, "path": "/x"}}),
    Odd(
        "subclasses of text",
        lambda: {Text("k"): Text("v"), "n": np.str_("x"), "u": collections.UserString("y")},
        {"k": "v", "n": "x", "u": "y"},
    ),
    Odd(
        "keys",
        lambda: {1: "a", None: "b", 2.5: "c", False: "d", (1, 2): "e", np.int8(7): "f", datetime.date(2026, 1, 2): "g"},
        {"1": "a", "None": "b", "2.5": "c", "False": "d", "(1, 2)": "e", "7": "f", "2026-01-02": "g"},
    ),
    Odd(
        "two keys of one text",
        lambda: {1: "a", "1": "b", "1 (2)": "c"},
        {"1": "a", "1 (2)": "b", "1 (2) (2)": "c"},
        texts=2,
    ),
    Odd(
        "text of every kind",
        lambda: {"a": '\0\n"\\\x7f', "µ": "日本語 🔬", "c": "\u2028"},
        {"a": '\0\n"\\\x7f', "µ": "日本語 🔬", "c": "\u2028"},
    ),
    Odd("half surrogates", lambda: {"a": "caf\udce9", "\ud800": 1}, {"a": "caf\\udce9", "\\ud800": 1}, texts=2),
    Odd(
        "no rule",
        lambda: {"a": Thing(), "b": [Thing, len], "c": Ellipsis},
        {"a": "a thing", "b": [str(Thing), str(len)], "c": "Ellipsis"},
        texts=4,
    ),
    Odd("no text", lambda: {"a": Mute()}, {"a": "<Mute: no text (RuntimeError)>"}, texts=1),
    Odd("a mapping that fails", lambda: {"a": Broken(), "b": 1}, {"a": "broken", "b": 1}, texts=1),
    Odd("metadata that fail", Broken, {"metadata": "broken"}, texts=1),
    Odd("a circle", circle, {"a": 1, "again": ["<dict inside itself>"]}, texts=1),
    Odd("one list twice is no circle", twice, {"a": [[]], "b": [[[]], [[]]]}),
    Odd("deep", lambda: {"a": nested(MAX_DEPTH - 1, 1)}, {"a": nested(MAX_DEPTH - 1, 1)}),
    Odd(
        "too deep",
        lambda: {"a": nested(5000, 1)},
        {"a": nested(MAX_DEPTH - 1, f"<list below {MAX_DEPTH} levels>")},
        texts=1,
    ),
    Odd(
        "keys of viewers",
        lambda: {"ElapsedTime-ms": np.float32(1.5), "PixelSizeUm": 0, "Width": "wide"},
        {"ElapsedTime-ms": 1.5, "PixelSizeUm": 0, "Width": "wide"},
    ),
]


def positions(count: int) -> list[dict[str, Any]]:
    return [
        {"Label": f"Pos{i:05d}", "DevicePositions": [{"Device": "XY", "Position_um": [i * 1.25, i * 2.5]}]}
        for i in range(count)
    ]


SUMMARIES: list[Odd] = [
    *ODD_METADATA,
    Odd("20,000 positions", lambda: {"StagePositions": positions(20_000)}, {"StagePositions": positions(20_000)}),
    Odd("a text of 3 MB", lambda: {"Comment": "µ" * 1_500_000}, {"Comment": "µ" * 1_500_000}),
    Odd(
        "many entries",
        lambda: {f"key {i}": [i, None] for i in range(60_000)},
        {f"key {i}": [i, None] for i in range(60_000)},
    ),
]
