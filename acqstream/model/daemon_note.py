"""What a daemon writes into the lock file of its data directory, so that programs find it by the directory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_ENDPOINTS = 16
STARTING = "the daemon is starting"


def start_mark(runtime: Path, endpoint: str) -> Path:
    """The folder that a daemon has locked while it starts, and has no socket yet."""
    if endpoint.startswith("ipc://"):
        return Path(endpoint.removeprefix("ipc://")).with_suffix(".starting")
    port = endpoint.rpartition(":")[2]
    return runtime / f"{port if port.isdigit() else 'any'}.starting"


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonNote:
    """endpoints: where producers connect; boot: id of its machine, may be empty; log: path of its log, or empty."""

    endpoints: tuple[str, ...]
    boot: str = ""
    log: str = ""

    def text(self) -> str:
        """Return the note as one line of JSON."""
        return json.dumps({"endpoints": self.endpoints, "boot": self.boot, "log": self.log})


def parse_daemon_note(text: str) -> DaemonNote | None:
    """Return the note in a line, None if it is not one, as of a daemon that is starting."""
    try:
        values: Any = json.loads(text)
        endpoints, boot, log = values["endpoints"], values.get("boot", ""), values.get("log", "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    is_list = isinstance(endpoints, list) and 0 < len(endpoints) <= MAX_ENDPOINTS
    if not is_list or not all(isinstance(one, str) for one in (*endpoints, boot, log)):
        return None
    return DaemonNote(endpoints=tuple(endpoints), boot=boot, log=log)
