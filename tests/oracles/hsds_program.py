"""Runs in the environment of HSDS: h5pyd answers requests, a JSON list per line, from a server.

Argument: the endpoint. Nothing of acqstream is imported here.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import h5pyd
import numpy as np

(ENDPOINT,) = sys.argv[1:]


def open_domain(bucket: str, domain: str) -> Any:
    # A cache of the client would hide what the server has now.
    return h5pyd.File(
        domain, "r", endpoint=ENDPOINT, username="admin", password="admin", bucket=bucket, use_cache=False
    )


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.tolist()]
    if isinstance(value, list | tuple):  # of references to scales
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, bytes):
        return value.decode()
    return value if isinstance(value, str | int | float | None) else str(value)


_TRIES, _PAUSE_S = 40, 0.25  # longer than the server keeps a shape


def objects(bucket: str, domain: str) -> dict[str, Any]:
    """Attributes of all groups and datasets by path; shape, chunks and type of datasets."""
    found: dict[str, Any] = {}

    def visit(name: str, item: Any) -> None:
        entry: dict[str, Any] = {"attrs": {key: plain(value) for key, value in item.attrs.items()}}
        if hasattr(item, "shape"):
            entry |= {"shape": list(item.shape), "dtype": str(item.dtype), "chunks": plain(np.asarray(item.chunks))}
            entry["maxshape"] = None if item.maxshape is None else list(item.maxshape)
        found[f"/{name}"] = entry

    with open_domain(bucket, domain) as file:
        visit("", file["/"])
        file.visititems(visit)
    return found


def read(bucket: str, domain: str, path: str, place: str) -> dict[str, Any]:
    """Save all of a dataset as a file of numpy's."""
    for _ in range(_TRIES):
        try:
            with open_domain(bucket, domain) as file:  # again: it keeps the shape that it was opened with
                np.save(place, file[path][...])
            return {}
        except ValueError as error:
            # The dataset grew since h5pyd asked for its shape: without a selection the server sends what is there now.
            if "cannot reshape" not in str(error):
                raise
            time.sleep(_PAUSE_S)
    raise ValueError(f"{path} grew during each of {_TRIES} reads")


def shape(bucket: str, domain: str, path: str) -> dict[str, Any]:
    """The shape of a dataset."""
    with open_domain(bucket, domain) as file:
        return {"shape": list(file[path].shape)}


VERBS: dict[str, Callable[..., dict[str, Any]]] = {"objects": objects, "read": read, "shape": shape}


def main() -> None:
    for line in sys.stdin:
        verb, *arguments = json.loads(line)
        try:
            answer: dict[str, Any] = {"found": VERBS[verb](*arguments)}
        except Exception as error:  # noqa: BLE001 - all of them are answers
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
