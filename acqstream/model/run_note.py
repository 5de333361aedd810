"""Notes on a run: a text and plain values, with the time and the frame number at which they came. Pure.

Their file has one JSON object a line, in order of arrival. Only its last line can be torn, by a power cut.
"""

from __future__ import annotations

import json
import re
import time
import unicodedata
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from acqstream.errors import FieldError, ProtocolError
from acqstream.model.fields import MAX_INTEGER, Fields, check_integer, check_text, field_error
from acqstream.model.metadata import check_depth, strict_json

MAX_TEXT_CHARACTERS = 1000
MAX_VALUES_BYTES = 4096  # as JSON
MAX_NOTES = 10_000  # of a dataset
MAX_NOTES_BYTES = 4 * 2**20  # of its file
_MAX_LINE_BYTES = 2**14
MAX_SOURCE_CHARACTERS = 40
RUN, TERMINAL, PAGE = "run", "terminal", "page"  # known sources
_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{3,63}")
_LINE_ENDS = frozenset("\u2028\u2029")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RunNote:
    """A note on a run. time_ns: when it was made, ns since 1970 UTC. values: plain values of any names.

    frame: the number of the next frame then: all frames below it were there before. None for a note that was added
    after the run. source: who made it: "run" (the acquisition program), "terminal" or "page". id tells notes apart.
    """

    text: str
    time_ns: int
    frame: int | None = None
    source: str = RUN
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)
    id: str = ""

    @property
    def time(self) -> datetime:
        """When it was made, UTC, to the microsecond."""
        return _EPOCH + timedelta(microseconds=self.time_ns // 1000)

    @property
    def content(self) -> str:
        """Text and values in one line, for people."""
        values = ", ".join(f"{name}={_shown(value)}" for name, value in self.values.items())
        return " ".join((self.text + (f" ({values})" if values else "")).split())

    def origin(self, zone: tzinfo | None = None) -> str:
        """When, where and by whom it was made, for people. zone: of the time; None: the local one."""
        when = self.time.astimezone(zone).isoformat(sep=" ", timespec="seconds")
        place = "after the run" if self.frame is None else f"before frame {self.frame:,}"
        return f"{when}, {place} ({self.source})"

    def sentence(self, zone: tzinfo | None = None) -> str:
        """All of the note in one line, for people."""
        return f"{self.origin(zone)}: {self.content}"

    def line(self) -> bytes:
        """The note as a line of the file. Raises ValueError for values that cannot be JSON."""
        return _json(self.as_dict()) + b"\n"

    def request(self) -> dict[str, Any]:
        """The fields of the message `note` that are of the note itself."""
        fields = {"id": self.id, "text": self.text, "tns": self.time_ns, "source": self.source}
        number = {} if self.frame is None else {"n": self.frame}
        return {**fields, **number, **({"values": dict(self.values)} if self.values else {})}

    def as_dict(self) -> dict[str, Any]:
        """The fields of the file."""
        return {
            "id": self.id,
            "time_ns": self.time_ns,
            "frame": self.frame,
            "source": self.source,
            "text": self.text,
            "values": dict(self.values),
        }


def new_note(text: object, source: str) -> RunNote:
    """A note of now, with an id of its own. Raises FieldError."""
    return RunNote(note_text(text), time.time_ns(), source=source, id=uuid.uuid4().hex)


def note_text(value: object) -> str:
    """The text of a note, without blanks around it. Raises FieldError for what is no text, too long or not printable.

    Tabs and line feeds are the only control characters, so that a note changes no terminal.
    """
    text = check_text(value, "text").replace("\r\n", "\n").strip()
    if not text or len(text) > MAX_TEXT_CHARACTERS:
        raise FieldError(f"field 'text' must have 1 to {MAX_TEXT_CHARACTERS} characters, not {len(text):,}")
    if not _is_printable(text):
        raise field_error("text", "a string without control characters and lone surrogates", value)
    return text


def note_id(value: object) -> str:
    """The id of a note. Raises FieldError."""
    if type(value) is not str or not _ID.fullmatch(value):
        raise field_error("id", "4 to 64 letters, digits or dashes", value)
    return value


def note_values(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values of a note. Raises FieldError for what is not JSON, or takes more than MAX_VALUES_BYTES as JSON."""
    try:
        content = _json(values)
        check_depth(values, content)
    except (ValueError, TypeError, RecursionError) as error:
        raise FieldError(f"field 'values' cannot be stored as JSON: {error}") from error
    if len(content) > MAX_VALUES_BYTES:
        raise FieldError(f"field 'values' has {len(content):,} bytes as JSON, expected at most {MAX_VALUES_BYTES:,}")
    if not all(map(_is_printable, values)):
        raise FieldError("field 'values' must have names without control characters and lone surrogates")
    return values


def note_source(value: object) -> str:
    """The source of a note. Raises FieldError."""
    text = check_text(value, "source", MAX_SOURCE_CHARACTERS)
    if not text or not text.isprintable():
        raise field_error("source", "a printable string", value)
    return text


def parse_notes(content: bytes) -> tuple[Sequence[RunNote], int]:
    """The notes in a file, and the length of their lines in bytes; a torn last line is not among them.

    Raises ValueError, which names the line, for damage before the last line.
    """
    notes: list[RunNote] = []
    end = 0
    lines = content.split(b"\n")
    for number, line in enumerate(lines[:-1], 1):
        try:
            notes.append(_parse_line(line))
        except (ValueError, ProtocolError, RecursionError) as error:
            if number == len(lines) - 1 and not lines[-1]:
                break  # a power cut may have kept its end, and not its begin
            raise ValueError(f"line {number} is not a note: {error!s:.200}") from error
        end += len(line) + 1
    return notes, end


def _parse_line(line: bytes) -> RunNote:
    if len(line) > _MAX_LINE_BYTES:
        raise ValueError(f"has {len(line):,} bytes, expected at most {_MAX_LINE_BYTES:,}")
    fields = Fields(strict_json(line.decode("utf-8")))
    return RunNote(
        text=note_text(fields.values.get("text")),
        time_ns=check_integer(fields.values.get("time_ns"), "time_ns", 0, MAX_INTEGER),
        frame=fields.optional_integer("frame"),
        source=note_source(fields.values.get("source")),
        values=note_values(fields.mapping("values")),
        id=note_id(fields.values.get("id")),
    )


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")


def _shown(value: object) -> str:
    return value if isinstance(value, str) and _is_printable(value) else json.dumps(value)


def _is_printable(text: str) -> bool:
    kinds = (unicodedata.category(one) for one in text if one not in "\n\t")
    return _LINE_ENDS.isdisjoint(text) and all(kind not in ("Cc", "Cs") for kind in kinds)
