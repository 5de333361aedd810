"""Strings in messages: the id of a dataset, field `ds`, and texts that can be sent on. docs/protocol.md."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from acqstream.model.fields import check_text, field_error

_DATASET_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{3,63}")
_MAX_LENGTH = 4096


def take_dataset_id(fields: Mapping[str, Any]) -> str:
    """The dataset id under `ds`: 4 to 64 letters, digits and dashes. Raises FieldError."""
    value = fields.get("ds")
    if type(value) is not str or not _is_dataset_id(value):
        raise field_error("ds", "4 to 64 letters, digits or dashes", value)
    return value


def take_text(fields: Mapping[str, Any], name: str, default: str | None = None, max_length: int = _MAX_LENGTH) -> str:
    """The string under `name`, the default where it is missing. Raises FieldError.

    Lone surrogates are refused: JSON can bring them in, and no message can send them on.
    """
    text = check_text(fields.get(name, default), name, max_length)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise field_error(name, "a string without lone surrogates", text)
    return text


@functools.lru_cache(maxsize=256)  # called for every frame
def _is_dataset_id(value: str) -> bool:
    return _DATASET_ID.fullmatch(value) is not None
