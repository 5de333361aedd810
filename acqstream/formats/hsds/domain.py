"""Domains of an HSDS server in a bucket: reads their documents, and finds the dataset that a path means.

A bucket is the folder below which all keys of the server lie. A path may be the folder with the buckets, a bucket, a
folder of domains, a domain (`.../home/acq.h5`), a group or dataset in it by its HDF5 path
(`.../home/acq.h5/entry/frames`, which no folder has), or the folder or file of a dataset.
"""

from __future__ import annotations

import itertools
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from acqstream.errors import CorruptDataset, DatasetError, StorageError, UnknownFormat, UnsupportedFeature
from acqstream.formats.chunk_reader import require_document
from acqstream.formats.hsds.metadata import (
    DatasetDocument,
    DomainDocument,
    GroupDocument,
    GroupLink,
    parse_dataset,
    parse_domain,
    parse_group,
)
from acqstream.formats.hsds.object_id import DATABASE_FOLDER, DOMAIN_NAME, ObjectId, parse_id, parse_key
from acqstream.storage.files.small_file import parse_json
from acqstream.storage.stores.data_path import DataPath
from acqstream.storage.stores.store import Store

_ATTEMPTS = 4
_PAUSE_S = 0.02  # a writer that replaces a document in place is done after that
_Document = TypeVar("_Document")


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket at a place; store has the same root. Methods raise CorruptDataset, StorageError."""

    place: DataPath
    store: Store

    def group(self, own: ObjectId) -> GroupDocument:
        """A group. Raises DatasetError if it does not exist."""
        return self._read(own.key, parse_group)

    def dataset(self, own: ObjectId) -> DatasetDocument:
        """A dataset. Raises DatasetError if it does not exist, UnsupportedFeature for items that are not read."""
        return self._read(own.key, parse_dataset)

    def domain(self, key: str) -> DomainDocument:
        """The domain with this key. Raises DatasetError if it does not exist."""
        return self._read(key, parse_domain)

    def where(self, key: str) -> str:
        """A file, for messages."""
        return f"{self.store.url}/{key}"

    def _read(self, key: str, parse: Callable[[bytes, str], _Document]) -> _Document:
        where = self.where(key)
        # Some writers replace documents in place: one that is half written is read again.
        for _ in range(_ATTEMPTS - 1):
            content = require_document(self.store, key)
            if _is_json(content, where):
                return parse(content, where)
            time.sleep(_PAUSE_S)
        return parse(require_document(self.store, key), where)


def bucket_at(path: DataPath, *, follows_links: bool) -> Bucket:
    """The bucket in a folder."""
    return Bucket(path, path.store(follows_links=follows_links))


def _is_json(content: bytes, where: str) -> bool:
    try:
        parse_json(content, where)
    except CorruptDataset:
        return False
    return True


MAX_GROUPS = 10_000  # of a domain, so that a damaged one ends
_MAX_SOFT_LINKS = 40


def datasets_of(bucket: Bucket, root: ObjectId) -> Iterator[tuple[str, ObjectId]]:
    """Paths and ids of the datasets of a domain, each once, those in upper groups first.

    Raises CorruptDataset, DatasetError for a group that does not exist, UnsupportedFeature for more than 10,000 groups.
    """
    seen, todo = {root}, deque([("", root)])
    groups = 0
    while todo:
        path, own = todo.popleft()
        groups += 1
        if groups > MAX_GROUPS:
            raise UnsupportedFeature(f"{bucket.where(root.key)}: more than {MAX_GROUPS} groups; open one dataset of it")
        for name, link in bucket.group(own).links.items():
            if link.kind != "hard":
                continue
            target = parse_id(link.target)
            if target in seen:
                continue
            seen.add(target)
            if target.kind == "g":
                todo.append((f"{path}/{name}", target))
            elif target.kind == "d":
                yield f"{path}/{name}", target


def object_at(bucket: Bucket, root: ObjectId, path: str) -> ObjectId:
    """The group or dataset at a path such as /entry/data/frames; soft links are followed.

    Raises DatasetError if nothing exists there, UnsupportedFeature for a link to another domain, CorruptDataset.
    """
    own, parts, soft_links, done = root, deque(_parts(path)), 0, ""
    while parts:
        name = parts.popleft()
        where = f"{bucket.where(root.key)}: {path!r:.200}"
        if own.kind != "g":
            raise DatasetError(f"{where}: {done or '/'} is not a group")
        link: GroupLink | None = bucket.group(own).links.get(name)
        if link is None:
            raise DatasetError(f"{where}: {done or '/'} has no {name!r:.100}")
        if link.kind == "external":
            raise UnsupportedFeature(f"{where}: a link to {link.target!r:.100} in the domain {link.domain!r:.100}")
        if link.kind == "hard":
            own, done = parse_id(link.target), f"{done}/{name}"
            continue
        soft_links += 1
        if soft_links > _MAX_SOFT_LINKS:
            raise CorruptDataset(f"more than {_MAX_SOFT_LINKS} soft links on the way to {path!r:.200}", path=where)
        parts.extendleft(reversed(_parts(link.target)))
        if link.target.startswith("/"):
            own, done = root, ""
    return own


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


DATASET_NAME = ".dataset.json"
_MAX_DEPTH = 20  # folders between a domain or an object and its bucket, or a domain and a dataset in it
_MAX_FOLDERS = 1000  # that are looked into for domains
_MAX_CHILDREN = 50  # that are looked at to tell what a folder is
_MAX_LISTED = 20
_V2_FOLDER = re.compile("[0-9a-f]{8}-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class FoundDataset:
    """A dataset: its bucket and id, and the path that opens it."""

    bucket: DataPath
    id: ObjectId
    path: str


def is_tree(path: DataPath) -> bool:
    """Return True if a place looks like one of the paths that this module describes; damaged ones count."""
    try:
        if path.name in (DOMAIN_NAME, DATASET_NAME) or _v1_dataset(path) is not None:
            return path.is_object()
        if not path.is_folder():
            return _domain_above(path) is not None
        own = (path / DATASET_NAME, path / DOMAIN_NAME)
        return any(one.is_object() for one in own) or _is_bucket(path) or any(map(_is_bucket_part, _folders(path)))
    except StorageError:
        return False  # a server without listings, or a folder that may not be read


def find_dataset(path: DataPath, *, follows_links: bool) -> FoundDataset:
    """The dataset that a path means. Raises DatasetError that lists several, UnknownFormat, CorruptDataset."""
    found = list(itertools.islice(_datasets(path, follows_links=follows_links), _MAX_LISTED + 1))
    if len(found) == 1:
        return found[0]
    if not found:
        raise DatasetError(f"{path}: an HSDS tree without any dataset")
    more = " and more" if len(found) > _MAX_LISTED else ""
    paths = ", ".join(one.path for one in found[:_MAX_LISTED])
    raise DatasetError(f"{path}: several datasets, expected one; open the path of one of them: {paths}{more}")


def _datasets(path: DataPath, *, follows_links: bool) -> Iterator[FoundDataset]:
    v1 = _v1_dataset(path)
    if v1 is not None and path.is_object():
        yield FoundDataset(path.parent, v1, str(path))
        return
    folder = path.parent if path.name in (DOMAIN_NAME, DATASET_NAME) else path
    if (folder / DATASET_NAME).is_object():
        yield _dataset_in(folder)
        return
    domain = _domain_above(folder)
    if domain is not None:
        yield from _in_domain(domain, _below(domain, folder), follows_links=follows_links)
        return
    domains = [*_domains_below(folder)]
    if not domains:
        raise UnknownFormat(f"{path}: no domain or dataset of HSDS here")
    for one in domains:
        yield from _in_domain(one, "", follows_links=follows_links)


def _in_domain(domain: DataPath, path: str, *, follows_links: bool) -> Iterator[FoundDataset]:
    """The dataset at a path of a domain, or those below a group."""
    bucket, root = _root_of(domain, follows_links=follows_links)
    own = object_at(bucket, root, path)
    if own.kind == "d":
        yield FoundDataset(bucket.place, own, f"{domain}{path}")
        return
    for below, dataset in datasets_of(bucket, own):
        yield FoundDataset(bucket.place, dataset, f"{domain}{path.rstrip('/')}{below}")


def _root_of(domain: DataPath, *, follows_links: bool) -> tuple[Bucket, ObjectId]:
    """The bucket and the root group of a domain."""
    where = domain / DOMAIN_NAME
    root = bucket_at(domain, follows_links=follows_links).domain(DOMAIN_NAME).root
    if root is None:
        raise DatasetError(f"{where}: a folder of domains, not a domain")
    for folder in domain.upwards(_MAX_DEPTH):
        bucket = bucket_at(folder, follows_links=follows_links)
        if bucket.store.size(root.key) is not None:  # servers of the web have no file names that end as v1 keys do
            return bucket, root
    raise CorruptDataset(f"the root group {root} is in no folder above", path=str(where))


def _dataset_in(folder: DataPath) -> FoundDataset:
    """The dataset whose v2 folder this is."""
    where = folder / DATASET_NAME
    own = parse_dataset(where.content(), str(where)).id
    for above in folder.upwards(_MAX_DEPTH):
        if not own.is_v1 and (above / own.key).real() == where.real():
            return FoundDataset(above, own, str(folder))
    raise CorruptDataset(f"id is {own}, which does not lie in this folder", path=str(where))


def _domain_above(path: DataPath) -> DataPath | None:
    """The domain that a place is, or is a path in; None without one. Folders of domains are none."""
    for folder in path.upwards(_MAX_DEPTH):
        if (folder / DOMAIN_NAME).is_object():
            return folder if _has_root(folder) else None
        if folder.is_folder():
            return None  # groups of a domain are no folders
    return None


def _has_root(folder: DataPath) -> bool:
    try:
        return bucket_at(folder, follows_links=True).domain(DOMAIN_NAME).root is not None
    except CorruptDataset:
        return True  # opening reports it


def _below(domain: DataPath, path: DataPath) -> str:
    """The path of a place in a domain, with "/" before each part."""
    names: list[str] = []
    for folder in path.upwards(_MAX_DEPTH):
        if folder.real() == domain.real():
            break
        names.append(folder.name)
    return "".join(f"/{name}" for name in reversed(names))


def _domains_below(top: DataPath) -> Iterator[DataPath]:
    todo, looked = [top], 0
    while todo and looked < _MAX_FOLDERS:
        folder = todo.pop(0)
        looked += 1
        if (folder / DOMAIN_NAME).is_object() and _has_root(folder):
            yield folder
        elif folder.name != DATABASE_FOLDER:
            todo += sorted(_folders(folder))


def _is_bucket(folder: DataPath) -> bool:
    """Return True for a folder with objects of schema v1 or v2."""
    database = folder / DATABASE_FOLDER
    if database.is_folder() and any(map(_V2_FOLDER.fullmatch, database.names())):
        return True
    return any(parse_key(name) is not None for name in itertools.islice(folder.names(), _MAX_CHILDREN))


def _is_bucket_part(folder: DataPath) -> bool:
    return (folder / DOMAIN_NAME).is_object() or _is_bucket(folder)


def _folders(folder: DataPath) -> list[DataPath]:
    children = itertools.islice(folder.children(), _MAX_FOLDERS)
    return list(
        itertools.islice((child for child in children if not child.is_link() and child.is_folder()), _MAX_CHILDREN)
    )


def _v1_dataset(path: DataPath) -> ObjectId | None:
    """The dataset whose v1 file has this name."""
    found = parse_key(path.name)
    is_dataset = found is not None and found.position is None and found.id.kind == "d"
    return found.id if found is not None and is_dataset else None
