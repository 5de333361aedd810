"""Text from the command line, in a locale that is not UTF-8."""

from __future__ import annotations


def typed_text(argument: str) -> str:
    """The argument as it was typed. Bytes that Python could not decode in a plain locale are mostly UTF-8."""
    try:
        return argument.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        return argument  # the caller reports the error
