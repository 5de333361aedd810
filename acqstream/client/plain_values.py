"""Axes, metadata and capture times as acquisition programs have them, turned into plain values.

Metadata become what JSON can hold. The rule: docs/metadata.md.
"""

from __future__ import annotations

import base64
import cmath
import dataclasses
import datetime
import enum
import math
import operator
import time
from collections import UserString
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from decimal import Decimal
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np

from acqstream.errors import ConfigError, ProtocolError
from acqstream.model.axes import AxisValue, are_good_axes, check_axes
from acqstream.model.metadata import AXES_KEY, TIME_KEY, encode_given
from acqstream.model.run_note import MAX_VALUES_BYTES, RunNote, note_text, note_values
from acqstream.model.units import count_text
from acqstream.protocol.encoding import MAX_HEADER_BYTES

MAX_DEPTH = 64
_MAX_TEXT_CHARACTERS = 1000  # of objects without a rule
_MAX_REASON_CHARACTERS = 1000
_MAX_FAST_VALUES = 200_000  # more are counted on the way
_MAX_DECIMAL_BITS = 10_000  # Python makes no decimal text of integers with thousands of digits
_SIMPLE = frozenset({bool, type(None)})
_CONTAINERS = frozenset({dict, list, tuple, set, frozenset})
_INT64 = range(-(2**63), 2**63)
_SECONDS = {"Y": (31_556_952, 1), "M": (2_629_746, 1), "W": (604_800, 1), "D": (86_400, 1), "h": (3600, 1)} | {
    "m": (60, 1),
    "s": (1, 1),
    "ms": (1, 10**3),
    "us": (1, 10**6),
    "ns": (1, 10**9),
    "ps": (1, 10**12),
    "fs": (1, 10**15),
    "as": (1, 10**18),
}  # fmt: skip - of the units of numpy; years and months are their means in the Gregorian calendar
_PLAIN = frozenset({int, str})  # most values are: not worth a call
CHANNEL_AXIS = "channel"
CHANNEL_NAMES_KEY = "ChNames"


class Changes(NamedTuple):
    """Values that are stored as something else: counts, and the first that became text. True if there are any.

    keys: those that the frame's own values replace.
    """

    nulls: int = 0
    texts: int = 0
    first_text: str = ""
    keys: str = ""

    def __bool__(self) -> bool:
        return self.nulls + self.texts > 0 or bool(self.keys)

    def warnings(self, where: str) -> Iterator[tuple[str, str]]:
        """Code and text of the warnings; where: of which metadata."""
        if self.nulls:
            text = (
                f"{self.nulls} NaN or infinite numbers or times in {where} became null; further ones are not reported"
            )
            yield "nan_in_metadata", text
        if self.texts:
            text = f"in {where} {count_text(self.texts, 'value', 'are')} stored as text, the first is {self.first_text}"
            yield "metadata_as_text", f"{text}; further ones are not reported"
        if self.keys:
            text = f"{self.keys} in {where} give way to the axes and the time_ns of `put`"
            yield "metadata_replaced", f"{text}; further ones are not reported"


NO_CHANGES = Changes()


def plain_metadata(metadata: Mapping[str, Any], max_bytes: int = MAX_HEADER_BYTES) -> tuple[dict[str, Any], Changes]:
    """`metadata` with plain Python values and string keys, and what was changed on the way.

    Plain metadata are returned as they are. No value is refused; raises ProtocolError for what is not a mapping, or
    takes more than max_bytes in every encoding.
    """
    if not isinstance(metadata, Mapping):
        raise ProtocolError(f"metadata must be a mapping, not {type(metadata).__name__}")
    if type(metadata) is dict and _is_plain(metadata):
        return metadata, NO_CHANGES
    conversion = _Conversion(max_bytes)
    plain = conversion.value(metadata)
    if not isinstance(plain, dict):  # its own code failed
        plain = {"metadata": plain}
    return plain, Changes(conversion.nulls, conversion.texts, conversion.first_text)


def plain_note(text: object, values: Mapping[str, Any], time_ns: int | None) -> tuple[RunNote, Changes]:
    """A note of now, or of time_ns, and what was changed in its values. Raises ProtocolError."""
    time_ns = time.time_ns() if time_ns is None else _checked_time(time_ns)
    plain, changes = plain_metadata(values, MAX_VALUES_BYTES)
    return RunNote(note_text(plain_scalar(text)), time_ns, values=note_values(plain)), changes


def plain_scalar(value: object) -> object:
    """Numpy scalars, enum members and str subclasses as the plain value they stand for; others as they are."""
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return value if type(value) is str else str.__str__(value)
    if isinstance(value, int) and type(value) not in (int, bool):
        return int(value)
    return value


def sendable_reason(reason: str) -> str:
    """`reason` without half surrogates, which file names in errors may have; cut at 1000 characters."""
    if len(reason) > _MAX_REASON_CHARACTERS:
        reason = f"{reason[: _MAX_REASON_CHARACTERS - 3]}..."
    return reason.encode("utf-8", "replace").decode()


def safe_text(value: object) -> str:
    """The text of any object, cut; of its type, where its own cannot be made."""
    try:
        text = str(value)
    except Exception as error:  # noqa: BLE001 - any code may be in there
        return f"<{type(value).__name__}: no text ({type(error).__name__})>"
    return text if len(text) <= _MAX_TEXT_CHARACTERS else f"{text[:_MAX_TEXT_CHARACTERS]}..."


def _is_plain(metadata: dict[Any, Any]) -> bool:
    """True for plain metadata of the usual size: nothing is to be done. Level by level, so circles end."""
    level: list[Any] = [metadata]
    seen = 0
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for container in level:
            is_map = type(container) is dict
            if is_map and not _has_plain_keys(container):
                return False
            seen += len(container)
            if seen > _MAX_FAST_VALUES:
                return False
            for value in container.values() if is_map else container:
                kind = type(value)
                if kind is dict or kind is list:
                    below.append(value)
                elif kind not in _SIMPLE and not _is_plain_scalar(kind, value):
                    return False
        if not below:
            return True
        level = below
    return False


def _has_plain_keys(container: dict[Any, Any]) -> bool:
    for key in container:  # noqa: SIM110 - a generator takes as long as a small dict
        if type(key) is not str or not (key.isascii() or _is_unicode(key)):
            return False
    return True


def _is_plain_scalar(kind: type, value: Any) -> bool:
    if kind is str:
        return value.isascii() or _is_unicode(value)
    return math.isfinite(value) if kind is float else kind is int and value in _INT64


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return True


class _Conversion:
    """One conversion. `_left` bounds it, also for a few lists that hold each other many times over."""

    def __init__(self, max_bytes: int) -> None:
        self.nulls = 0
        self.texts = 0
        self.first_text = ""
        self._max_bytes = self._left = max_bytes
        self._path: list[str | int] = []  # keys and places from the top to the present value
        self._open: set[int] = set()  # containers that are being converted: one of them inside itself is a circle

    def value(self, value: Any) -> Any:
        """The plain value. An object whose own code fails becomes its text."""
        self._take(1)
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is str:
            return self._text(value)
        if kind is int:
            return value if value in _INT64 else self._as_text(value)
        if kind is float:
            return self._number(value)
        depth = len(self._path)
        try:
            if kind in _CONTAINERS:
                return self._of_container(value, value)
            return self._of_object(value)
        except ProtocolError:
            raise
        except Exception:  # noqa: BLE001 - of the object, and its text shows it
            del self._path[depth:]
            return self._as_text(value)

    def _of_object(self, value: Any) -> Any:
        if isinstance(value, enum.Enum):
            return self.value(value.value)
        if isinstance(value, np.generic | np.ndarray):
            return self._of_numpy(value)
        if isinstance(value, str | UserString | PurePath):
            return self._text(str.__str__(value) if isinstance(value, str) else str(value))
        if isinstance(value, int | float):
            return self.value(int(value) if isinstance(value, int) else float(value))
        if isinstance(value, datetime.timedelta):
            return self._number(value.total_seconds())
        if isinstance(value, datetime.date | datetime.time):  # datetime is a date
            return value.isoformat() if value == value else self._null()  # noqa: PLR0124 - pandas has a NaT
        if isinstance(value, bytes | bytearray | memoryview):
            return self._bytes(bytes(value))
        if isinstance(value, Decimal | complex):
            is_finite = value.is_finite() if isinstance(value, Decimal) else cmath.isfinite(value)
            return self._as_text(value) if is_finite else self._null()
        return self._of_container(value, _content(value))

    def _of_container(self, value: Any, content: Any) -> Any:
        """`value`, whose content is a mapping or a list; as text where it has none, or lies too deep."""
        if content is None:
            return self._as_text(value)
        is_circle = id(value) in self._open
        if is_circle or len(self._path) >= MAX_DEPTH:  # never its text, which may be without end
            why = "inside itself" if is_circle else f"below {MAX_DEPTH} levels"
            return self._note_text(type(value).__name__, f"<{type(value).__name__} {why}>")
        self._open.add(id(value))
        try:
            if isinstance(content, Mapping):
                return self._mapping(content)
            plain = self._list(content, len(content))
            return _sorted(plain) if isinstance(value, set | frozenset) else plain
        finally:
            self._open.discard(id(value))

    def _mapping(self, values: Mapping[Any, Any]) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        again: dict[str, int] = {}
        for key, value in values.items():
            text = first = self._key(key)
            self._path.append(text)
            while text in plain:  # as 1 and "1": both are kept
                again[first] = again.get(first, 1) + 1
                text = f"{first} ({again[first]})"
            if text != first:
                self._note_text("a key that occurs twice", text)
            plain[text] = self.value(value)
            self._path.pop()
        return plain

    def _list(self, values: Iterable[Any], size: int) -> list[Any]:
        self._check(size)
        plain = []
        for place, entry in enumerate(values):
            self._path.append(place)
            plain.append(self.value(entry))
            self._path.pop()
        return plain

    def _of_numpy(self, value: Any) -> Any:
        kind, size = value.dtype.kind, value.dtype.itemsize
        if value is np.ma.masked:
            return self._null()
        if isinstance(value, np.ndarray):
            if value.ndim == 0:
                return self.value(value[()])
            self._check(value.size)
            return self._list(value.tolist() if kind == "U" or (kind in "biuf" and size <= 8) else value, len(value))
        if kind in "mM":
            if np.isnat(value):
                return self._null()
            return str(value) if kind == "M" else self._number(_seconds(value))
        if value.dtype.names:
            return self._mapping({name: value[name] for name in value.dtype.names})
        if kind == "V":
            return self._bytes(value.tobytes())
        if isinstance(value, np.longdouble) and not isinstance(value.item(), float):
            is_double = float(value) == value or not np.isfinite(value)
            return self._number(float(value)) if is_double else self._as_text(value)
        return self.value(value.item())

    def _key(self, key: Any) -> str:
        try:
            plain = plain_scalar(key)
            text = plain.isoformat() if isinstance(plain, datetime.date | datetime.time) else plain
            text = text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text
        except Exception:  # noqa: BLE001 - as of values
            text = key
        return self._text(text if type(text) is str else safe_text(text))

    def _text(self, text: str) -> str:
        self._take(len(text))
        if text.isascii() or _is_unicode(text):
            return text
        return self._note_text("half surrogates", text.encode("utf-8", "backslashreplace").decode())

    def _bytes(self, value: bytes) -> str:
        self._take(len(value))
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = f"base64:{base64.b64encode(value).decode()}"
        return self._note_text("bytes", text)

    def _as_text(self, value: Any) -> str:
        if type(value) is int:  # exact, however long
            text = str(value) if value.bit_length() < _MAX_DECIMAL_BITS else f"{value:#x}"
        else:
            text = str(value) if type(value) is Decimal else safe_text(value)
        return self._note_text(type(value).__name__, self._text(text))

    def _note_text(self, what: str, text: str) -> str:
        self.texts += 1
        self.first_text = self.first_text or f"{self._place()} ({what})"
        return text

    def _number(self, value: float) -> float | None:
        if math.isfinite(value):
            return value
        self._null()
        return None

    def _null(self) -> None:
        """The value of NaN, as None."""
        self.nulls += 1

    def _take(self, n_bytes: int) -> None:
        self._check(n_bytes)
        self._left -= n_bytes

    def _check(self, n_bytes: int) -> None:
        if n_bytes > self._left:
            raise ProtocolError(
                f"metadata{self._place()}: more than {self._max_bytes} bytes, which is the limit; store large arrays "
                "and texts as frames, or in a file of their own and its path in the metadata"
            )

    def _place(self) -> str:
        return "".join(f"[{key!r:.60}]" for key in self._path[:4]) + ("..." if len(self._path) > 4 else "")


def _content(value: Any) -> Any:
    """A mapping or a sized iterable with the content of an object; None of one without a rule."""
    if isinstance(value, type):
        return None
    if hasattr(value, "model_dump"):  # pydantic, which may be a sequence too
        value = value.model_dump(exclude_unset=True)
    elif dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif not isinstance(value, Mapping | Sequence | Set | ValuesView) and hasattr(value, "tolist"):
        value = value.tolist()
    is_content = isinstance(value, Mapping | Sequence | Set | ValuesView) and not isinstance(value, str | bytes)
    return value if is_content else None


def _sorted(values: list[Any]) -> list[Any]:
    """The values of a set, in an order that does not change from run to run."""
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=lambda value: (type(value).__name__, str(value)))


def _seconds(span: np.timedelta64) -> float:
    unit, step = np.datetime_data(span.dtype)
    seconds, parts = _SECONDS.get(unit, (1, 1))  # one without a unit is a number
    return int(span.astype(np.int64)) * step * seconds / parts


def plain_axes(axes: Mapping[Any, Any] | None, axis_values: Mapping[str, Any]) -> dict[str, AxisValue]:
    """The axes of a frame from one mapping and from keywords, checked. Raises ProtocolError naming the axis."""
    if axes is None and are_good_axes(axis_values):
        return dict(axis_values)
    plain = {
        name if name.__class__ is str else plain_scalar(name): value
        if value.__class__ in _PLAIN
        else plain_scalar(value)
        for name, value in merged_axes(axes, axis_values).items()
    }
    return check_axes(plain)


def merged_axes(axes: Mapping[Any, Any] | None, axis_values: Mapping[str, Any]) -> Mapping[Any, Any]:
    """One mapping and keywords together. Raises ProtocolError for an axis that is in both."""
    if axes is None:
        return axis_values
    if not isinstance(axes, Mapping):
        raise ProtocolError(f"axes must be a mapping of name to integer or string, not {type(axes).__name__}")
    twice = axes.keys() & axis_values.keys()
    if twice:
        raise ProtocolError(f"axis {min(twice)!r} is given both in the mapping and as a keyword")
    return {**axes, **axis_values}


class MicroManagerAxes:
    """Integer axes, as Micro-Manager Studio reads them: a channel's name becomes its place in `ChNames`."""

    def __init__(self, summary: Mapping[str, Any]) -> None:
        names = summary.get(CHANNEL_NAMES_KEY)
        self._channels: dict[str, int] | None = None
        if names is None:
            return
        if not isinstance(names, Sequence) or isinstance(names, str) or not all(isinstance(n, str) for n in names):
            raise ConfigError(f"summary[{CHANNEL_NAMES_KEY!r}] must be a list of channel names, not {names!r:.80}")
        self._channels = {name: index for index, name in enumerate(names)}

    def convert(self, axes: dict[str, AxisValue]) -> dict[str, AxisValue]:
        """`axes` with integers only. Raises ConfigError, whose text names the value to pass."""
        return {name: self._integer(name, value) for name, value in axes.items()}

    def _integer(self, name: str, value: AxisValue) -> int:
        if isinstance(value, int):
            return value
        if name != CHANNEL_AXIS:
            raise ConfigError(f"micromanager=True needs integer axes; {name}={value!r} must be a number")
        if self._channels is None:
            raise ConfigError(
                f"channel {value!r}: with micromanager=True pass the channel names to create, "
                f"for example summary={{{CHANNEL_NAMES_KEY!r}: [{value!r}, ...]}}, or a number as channel"
            )
        if value not in self._channels:
            raise ConfigError(f"channel {value!r} is not in summary[{CHANNEL_NAMES_KEY!r}]: {list(self._channels)}")
        return self._channels[value]


def plain_arguments(
    axes: Mapping[Any, Any] | None,
    axis_values: Mapping[str, Any],
    meta: Mapping[str, Any] | None,
    time_ns: int | None,
    micromanager: MicroManagerAxes | None,
) -> tuple[Mapping[str, AxisValue], bytes, int | None, Changes]:
    """Axes, encoded metadata (b"" for none) and capture time of a frame, from the arguments of `put`.

    Nothing of the result changes with what was given. The last value is what was changed in the metadata.

    Raises ProtocolError, and ConfigError for axes that Micro-Manager does not support.
    """
    plain = plain_axes(axes, axis_values)
    if micromanager is not None:
        plain = micromanager.convert(plain)
    if time_ns is not None:
        time_ns = _checked_time(time_ns)
    if meta is None:
        return plain, b"", time_ns, NO_CHANGES
    metadata, replaced = plain_metadata(meta)
    try:
        text, time_ns = encode_given(metadata, time_ns)
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(f"the metadata cannot be stored as JSON: {error}") from error
    if AXES_KEY in metadata or TIME_KEY in metadata:
        own = {AXES_KEY: plain, TIME_KEY: time_ns if time_ns is not None else metadata.get(TIME_KEY)}
        keys = ", ".join(key for key, value in own.items() if metadata.get(key, value) != value)
        replaced = replaced._replace(keys=keys)
    return plain, text, time_ns, replaced


def _checked_time(value: object) -> int:
    try:
        time_ns = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        time_ns = -1
    if isinstance(value, bool) or not 0 <= time_ns < 2**63:
        raise ProtocolError(f"time_ns={value!r:.60} must be an integer: nanoseconds since 1970, below 2**63")
    return time_ns
