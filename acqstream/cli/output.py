"""Output: tables and JSON documents to stdout, progress to stderr if that is a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_PIPE_COLUMNS = 160  # a table in a file or pipe is not folded to 80 columns


def print_json(document: object) -> None:
    """One JSON document on stdout, in ASCII; dataclasses become objects, paths strings."""
    print(json.dumps(document, indent=2, ensure_ascii=True, default=_plain))


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def console() -> Console:
    """A console for tables on stdout; plain text if that is not a terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS, highlight=False, soft_wrap=False)


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A progress display on stderr that clears itself; silent if stderr is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        yield progress
