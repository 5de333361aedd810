"""Walks the groups of a domain: its datasets, and the object at a path of HDF5."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from acqstream.errors import CorruptDataset, DatasetError, UnsupportedFeature
from acqstream.formats.hsds.bucket import Bucket
from acqstream.formats.hsds.object_documents import GroupLink
from acqstream.formats.hsds.object_id import ObjectId, parse_id

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
