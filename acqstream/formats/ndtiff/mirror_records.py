"""The files in a dataset's folder that record how its mirrors and levels stand: `acqstream.mirror.n5.json`.

Each mirror has a file of its own, so that programs which make different mirrors share no file. The holder of the
mirror's lock writes it, see docs/decisions/026.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from acqstream.errors import CorruptDataset, FileMissing, StorageError
from acqstream.model.fields import Fields
from acqstream.model.view_spec import MirrorResult
from acqstream.storage.files.small_file import parsed, read_json_object
from acqstream.storage.files.url_path import is_remote

PREFIX, SUFFIX = "acqstream.mirror.", ".json"
MAX_RECORDS = 64
MAX_RECORD_BYTES = 2**16
_MAX_KEY_CHARACTERS = 100
VIEW_SUFFIX = ".view"  # of the folder beside a mirror


def record_key(dataset: Path, view_folder: Path) -> str:
    """Key of a view's record by its folder: "n5" for `cells.n5.view`, "pyramid" for `cells.pyramid`.

    A mirror that does not lie beside its dataset gets a digest of its path.
    """
    dataset, view_folder = dataset.absolute(), view_folder.absolute()
    start = f"{dataset.name}."
    if view_folder.parent == dataset.parent and view_folder.name.startswith(start):
        key = view_folder.name.removeprefix(start).removesuffix(VIEW_SUFFIX)
        if 0 < len(key) <= _MAX_KEY_CHARACTERS:
            return key
    return hashlib.sha256(os.fsencode(view_folder)).hexdigest()[:16]


def record_path(dataset: Path, key: str) -> Path:
    return dataset / f"{PREFIX}{key}{SUFFIX}"


def read_records(dataset: Path) -> dict[str, MirrorResult]:
    """All records in a dataset's folder by key, the first MAX_RECORDS by name; none for a dataset on a web server.

    A damaged one reads as "unfinished" with the damage as reason. Raises StorageError if the folder cannot be listed.
    """
    if is_remote(dataset):
        return {}
    try:
        names = sorted(name for name in os.listdir(dataset) if name.startswith(PREFIX) and name.endswith(SUFFIX))
    except OSError as error:
        raise StorageError.wrap(error, str(dataset), "list") from error
    keys = [name.removeprefix(PREFIX).removesuffix(SUFFIX) for name in names[:MAX_RECORDS]]
    return {key: found for key in keys if (found := read_record(dataset, key)) is not None}


def read_record(dataset: Path, key: str) -> MirrorResult | None:
    """One record; None where it does not exist."""
    path = record_path(dataset, key)
    try:
        return parsed(read_json_object(path, MAX_RECORD_BYTES, is_ours=True), path, _parse)
    except FileMissing:
        return None
    except (CorruptDataset, StorageError) as error:
        return MirrorResult(name=key, state="unfinished", reason=f"its record cannot be read: {error}")


def encode_record(result: MirrorResult) -> dict[str, Any]:
    """Content of the file."""
    return {"format": "acqstream-mirror", "version": 1, **result.as_dict()}


def _parse(fields: Fields) -> MirrorResult:
    if fields.values.get("format") != "acqstream-mirror" or fields.values.get("version") != 1:
        raise ValueError("is not a record of a mirror, version 1")
    return MirrorResult.of(fields)
