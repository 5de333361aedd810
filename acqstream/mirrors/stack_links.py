"""Names by which a server of HSDS reaches the stacks of a dataset: through a link in its bucket, or beside it."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path

from acqstream.errors import DatasetError, StorageError
from acqstream.formats.hsds.metadata import BUCKET
from acqstream.storage.files.disk import Disk
from acqstream.storage.files.folder_tree import make_folder
from acqstream.storage.platform.capabilities import has_folder_links

LINK = "stacks"
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)  # of the system or the file system
_BUCKET_NAME = re.compile(r"[A-Za-z0-9_.-]+")  # as HSDS takes them


@dataclass(frozen=True, slots=True)
class StackLinks:
    """bucket, folder and uri_start as in ReferenceNote. advice: how to serve it, where that is unusual; else ""."""

    bucket: str
    folder: str
    uri_start: str
    advice: str = ""


def link_stacks(disk: Disk, container: Path, dataset: Path) -> StackLinks:
    """Make the bucket of a container, with a relative link to its dataset; both may then be moved together.

    Where no link can be made, the container is the bucket itself and the folder above the root, which has the dataset
    as a second bucket. Raises DatasetError if the two are not in one folder then, StorageError.
    """
    if not has_folder_links():
        return _beside(container, dataset, "this system permits links to administrators only")
    bucket = container / BUCKET
    for folder in (container, bucket):
        make_folder(disk, os.fspath(folder), follows_links=folder is container)
    link, target = bucket / LINK, os.path.relpath(os.path.realpath(dataset), os.path.realpath(bucket))
    try:
        if link.is_symlink() and os.readlink(link) == target:
            return StackLinks(BUCKET, BUCKET, f"{BUCKET}/{LINK}/")
        if link.is_symlink():  # the mirror or the dataset was moved
            disk.unlink(os.fspath(link))
        disk.link_folder(target, os.fspath(link))
        disk.sync_directory(os.fspath(bucket))
    except OSError as error:
        if error.errno in _NO_LINKS:
            return _beside(container, dataset, f"no link can be made here ({error.strerror})")
        raise StorageError.wrap(error, os.fspath(link), "cannot make the link to the dataset") from error
    return StackLinks(BUCKET, BUCKET, f"{BUCKET}/{LINK}/")


def _beside(container: Path, dataset: Path, reason: str) -> StackLinks:
    names = container.name, dataset.name
    is_beside = os.path.realpath(container.parent) == os.path.realpath(dataset.parent)
    if not is_beside or not all(map(_BUCKET_NAME.fullmatch, names)):
        raise DatasetError(
            f"{container}: {reason}, so a server has to reach the dataset as a bucket of its own: expected both in one "
            f"folder, with names of letters, digits, '_', '.' and '-', found {dataset}; pixels=copy needs no dataset"
        )
    text = f"{container.name}: {reason}. Serve {container.parent} as the root, with the bucket {container.name}"
    return StackLinks(container.name, "", f"{dataset.name}/", text)
