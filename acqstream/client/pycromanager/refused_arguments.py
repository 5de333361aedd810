"""The directory and name of `pycromanager.Acquisition`: the daemon's own directory is taken, another one refused."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from typing import Any

from acqstream.client.default_endpoint import find_endpoint
from acqstream.client.machine import boot_id
from acqstream.client.status import fetch_status
from acqstream.errors import AcqStreamError, ConfigError

_ASK_S = 1.0


def take_name(arguments: tuple[object, ...], options: MutableMapping[str, Any]) -> Any:
    """Remove directory and name from the options, or read them from [directory,] name; return the name.

    Raises ConfigError for a directory that is not the daemon's own, TypeError without a name.
    """
    name, directory = options.pop("name", None), options.pop("directory", None)
    given: list[Any] = [*arguments, *([] if name is None else [name])]
    if not 1 <= len(given) <= (2 if directory is None else 1):
        raise TypeError("Acquisition takes a name, and perhaps a directory before it; give all others by their names")
    directory, name = given if len(given) == 2 else (directory, given[0])
    if directory is None:
        return name  # `create` checks it
    own, where = _data_directory(options)
    if own and _is_same(directory, own):
        return name
    raise ConfigError(
        f"directory={str(directory)!r:.300}: the daemon writes into its own data directory{where}. "
        f"Leave the argument out and give the name alone: Acquisition({str(name)!r:.120}). Another directory is chosen "
        "where the daemon is started, acqstream serve --data DIR, or by the argument data=DIR, which starts one"
    )


def _is_same(directory: Any, own: str) -> bool:
    try:
        return os.path.samefile(directory, own)
    except (OSError, TypeError, ValueError):
        return False


def _data_directory(options: Mapping[str, Any]) -> tuple[str, str]:
    """The daemon's data directory on this machine, and the end of a sentence with it; empty where none is reported."""
    if options.get("data") is not None:
        return str(options["data"]), f", {options['data']}"
    keys = {key: options[key] for key in ("server_key", "keys") if options.get(key) is not None}
    try:
        endpoint = str(options.get("endpoint") or find_endpoint())
        status = fetch_status(endpoint, timeout_s=_ASK_S, **keys)
    except AcqStreamError:  # the directory is a comfort; the error comes without it
        return "", ""
    here = status.data if not boot_id() or status.boot == boot_id() else ""
    return here, f", {status.data} at {endpoint}" if status.data else ""
