"""Arguments of `pycromanager.Acquisition` without a meaning here, and an error with the replacement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acqstream.client.default_endpoint import find_endpoint
from acqstream.client.status import fetch_status
from acqstream.errors import AcqStreamError, ConfigError

_ASK_S = 1.0


def refuse_directory(name: object, others: tuple[object, ...], options: Mapping[str, Any]) -> None:
    """Raise ConfigError for a directory: `directory=`, or the first of two arguments without names."""
    directory = options.get("directory")
    if others:
        directory, name = name, others[0]
    if directory is None:
        return
    raise ConfigError(
        f"directory={str(directory)!r:.300}: the daemon writes into its own data directory{_data_directory(options)}. "
        f"Leave the argument out and give the name alone: Acquisition({str(name)!r:.120}). Another directory is chosen "
        "where the daemon is started, acqstream serve --data DIR, or by the argument data=DIR, which starts one"
    )


def _data_directory(options: Mapping[str, Any]) -> str:
    """The daemon's data directory as the end of a sentence, empty where no daemon reports it."""
    if options.get("data") is not None:
        return f", {options['data']}"
    keys = {key: options[key] for key in ("server_key", "keys") if options.get(key) is not None}
    try:
        endpoint = str(options.get("endpoint") or find_endpoint())
        data = fetch_status(endpoint, timeout_s=_ASK_S, **keys).data
    except AcqStreamError:  # the directory is a comfort; the error comes without it
        return ""
    return f", {data} at {endpoint}" if data else ""
