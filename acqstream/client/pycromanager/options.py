"""The arguments of `pycromanager.Acquisition` as those of `acqstream.create`. Does not load Pycro-Manager.

The daemon's own directory is taken, another one refused. Arguments without effect are named in a warning.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, MutableMapping
from typing import Any

from acqstream.client.daemon_requests import fetch_status
from acqstream.client.default_endpoint import find_endpoint
from acqstream.errors import AcqStreamError, ConfigError
from acqstream.storage import platform

_ASK_S = 1.0
# Source: the signatures of pycromanager 1.0, PythonBackendAcquisition and JavaBackendAcquisition.
_IGNORED = ("show_display", "napari_viewer", "saving_queue_size", "timeout", "port")
_CALLER_LEVEL = 3  # of the warning: the script that makes the Acquisition
_FREE = -1  # of max_multi_res_index: as many levels as are needed


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
    here = status.data if not platform.boot_id() or status.boot == platform.boot_id() else ""
    return here, f", {status.data} at {endpoint}" if status.data else ""


def without_ignored(options: Mapping[str, Any]) -> dict[str, Any]:
    """options without the arguments that have no effect; one UserWarning names those with a value."""
    effectless = [name for name in _IGNORED if options.get(name) not in (None, False)]
    if effectless:
        text = (
            f"{', '.join(effectless)} has no effect on an acquisition that the acqstream daemon stores; "
            "look at the dataset with `acqstream view` while it grows"
        )
        warnings.warn(text, stacklevel=_CALLER_LEVEL)
    return {name: value for name, value in options.items() if name not in _IGNORED}


def with_tiles(options: Mapping[str, Any]) -> dict[str, Any]:
    """options without tile_overlap (pixels; a number or (x, y)) and max_multi_res_index, which become tiles and levels.

    Source: `pycromanager.XYTiledAcquisition`. Raises ConfigError for invalid overlaps, or for options given twice.
    """
    plain = dict(options)
    overlap, max_index = plain.pop("tile_overlap", None), plain.pop("max_multi_res_index", None)
    if overlap is None:
        if max_index is not None:
            raise ConfigError("max_multi_res_index is for tiles: pass tile_overlap too")
        return plain
    if "tiles" in plain or "levels" in plain:
        raise ConfigError("pass either tile_overlap and max_multi_res_index, or tiles and levels")
    both = overlap if isinstance(overlap, tuple | list) else (overlap, overlap)
    if len(both) != 2:
        raise ConfigError(f"tile_overlap={overlap!r:.60} must be pixels, or (x, y) in pixels")
    plain["tiles"] = {"overlap": (both[1], both[0])}
    if max_index is not None and max_index != _FREE:
        plain["levels"] = max_index
    return plain
