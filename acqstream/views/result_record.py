"""Records the state of a view in the folder of its dataset, see `acqstream.formats.ndtiff.folders`."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

from acqstream.errors import DiskFull, StorageError
from acqstream.formats.ndtiff.folders import (
    VIEW_SUFFIX,
    encode_record,
    read_record,
    record_key,
    record_path,
)
from acqstream.log.state_file import STATE_NAME, now_text
from acqstream.model.metadata import dump_ascii
from acqstream.model.view_spec import MAX_REASON_CHARACTERS, PYRAMID_KIND, MirrorResult
from acqstream.storage.files.atomic_file import replace_file
from acqstream.storage.files.disk import Disk
from acqstream.views import checkpoint

logger = logging.getLogger("acqstream.views")


def record_result(disk: Disk, dataset: Path, view_folder: Path, result: MirrorResult) -> None:
    """Replace the record of the view with this folder; on return the new one survives a power cut.

    Only for the holder of the view's lock, or if no process can have it. Nothing is written if the record is the same
    already, or another program wrote the dataset. Raises DiskFull; other errors are logged, as the view itself does not
    need the record.
    """
    if not (dataset / STATE_NAME).is_file():
        return
    key = record_key(dataset, view_folder)
    path = recorded_path(dataset, view_folder)
    reason = _storable(result.reason[:MAX_REASON_CHARACTERS])
    result = replace(result, path=_storable(path), reason=reason, changed_at="")
    recorded = read_record(dataset, key)
    if recorded is not None and replace(recorded, changed_at="") == result:
        return
    content = dump_ascii(encode_record(replace(result, changed_at=now_text())))
    try:
        replace_file(disk, os.fspath(record_path(dataset, key)), content)
    except DiskFull:
        raise
    except StorageError as error:
        logger.warning("cannot record that mirror %s of %s is %s: %s", result.name, dataset, result.state, error)


def reopen_record(disk: Disk, dataset: Path, view_folder: Path, result: MirrorResult) -> None:
    """Replace the record of a view that resumes, if it is recorded as ended. Raises DiskFull."""
    recorded = read_record(dataset, record_key(dataset, view_folder))
    if recorded is not None and recorded.ended:
        record_result(disk, dataset, view_folder, result)


def remove_record(disk: Disk, dataset: Path, view_folder: Path) -> None:
    """Remove the record of a view whose dataset grows again. Raises StorageError."""
    path = os.fspath(record_path(dataset, record_key(dataset, view_folder)))
    if not os.path.lexists(path):
        return
    try:
        disk.unlink(path)
    except OSError as error:
        raise StorageError.wrap(error, path, "cannot remove") from error


def recorded_path(dataset: Path, view_folder: Path) -> str:
    """Return the folder of the view's result relative to the dataset, "." for levels, which lie in it."""
    if view_folder == checkpoint.view_folder(dataset, PYRAMID_KIND):
        return "."
    container = view_folder.with_name(view_folder.name.removesuffix(VIEW_SUFFIX))
    try:
        return Path(os.path.relpath(container, dataset)).as_posix()
    except ValueError:  # on another drive
        return str(container.absolute())


def _storable(text: str) -> str:
    """Replace half surrogates: file names in error texts may have them, and JSON cannot."""
    return text.encode("utf-8", "replace").decode()
