"""The folders of a dataset (container, and one per resolution level), and the small files beside its frames.

Source: folders of the reference writers, Java and Python. Version 3 flat: everything in the container. Version 2, and
tiled datasets of version 3: `Full resolution`, `Downsampled_x2`, `Downsampled_x4` ... in the container, each with its
own index and stack files.

`display_settings.txt` (source: files of Micro-Manager) is one JSON object of no fixed form, beside the stacks of flat
datasets and at the top of tiled ones. Some Java writers leave the end of an older, longer file after it.

`acqstream.mirror.n5.json` records how a mirror or the levels stand. Each mirror has a file of its own, so that programs
which make different mirrors share no file. The holder of the mirror's lock writes it, see docs/decisions/026.

A run is a dataset with its parts: mirrors, levels and their notes, which lie beside it under its name and a dot.
`run_of_part` is the one rule of what belongs to what, for lists, the page, and what moves or removes runs.
`acqstream.notes.jsonl` has the notes on the run, a line each.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from acqstream.errors import CorruptDataset, FileMissing, StorageError, UnknownFormat
from acqstream.formats.ndtiff.completion import STATE_NAME, dataset_id
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.formats.ndtiff.layout import DISPLAY_SETTINGS_NAME
from acqstream.formats.ndtiff.stack_header import INDEX_MAP_MAGIC, NDTIFF_MAGIC, decode_text
from acqstream.model.fields import Fields
from acqstream.model.receipt import Receipt
from acqstream.model.run_note import MAX_NOTES, MAX_NOTES_BYTES, RunNote, parse_notes
from acqstream.model.view_spec import LOG_VIEW_KINDS, MirrorResult
from acqstream.storage.files.read_file import ReadFile
from acqstream.storage.files.small_file import parsed, read_json_object, read_small_file
from acqstream.storage.files.url_path import is_remote

FULL_RESOLUTION = "Full resolution"
RECEIPT_NAME = "receipt.json"
_MAX_LISTED = 20
_LEVEL = re.compile(r"Full resolution|Downsampled_x(?P<factor>[1-9][0-9]{0,9})")
_STACK_NAME = re.compile(r"(?P<stem>.*(?:NDTiffStack|MagellanStack))(?:_(?P<number>[0-9]{1,9}))?\.(?:tif|TIF)")
_OLD_MAGICS = {INDEX_MAP_MAGIC.to_bytes(4, "little"), INDEX_MAP_MAGIC.to_bytes(4, "big")}
_MAGICS = {NDTIFF_MAGIC.to_bytes(4, "little"), NDTIFF_MAGIC.to_bytes(4, "big")} | _OLD_MAGICS

_MAX_BYTES = 16 * 1024 * 1024

RECORD_PREFIX, RECORD_SUFFIX = "acqstream.mirror.", ".json"
MAX_RECORDS = 64
MAX_RECORD_BYTES = 2**16
_MAX_KEY_CHARACTERS = 100
NOTES_NAME = "acqstream.notes.jsonl"
VIEW_SUFFIX = ".view"  # of the folder beside a mirror
_CHECKPOINT = "view.json"
_ZARR_DOCUMENTS = ("zarr.json", ".zarray", ".zgroup", ".zattrs")
_SERVER_DOCUMENTS = (".domain.json", ".dataset.json")  # of HSDS
_OWN_NOTES = ("acqstream-array.json", "acqstream-hsds.json", "acqstream-volume.json")
_DOCUMENTS = frozenset(  # of containers, and of datasets that begin or have lost their index
    {*_ZARR_DOCUMENTS, *_SERVER_DOCUMENTS, "attributes.json", "info", "header.wkw", "datasource-properties.json"}
    | {*_OWN_NOTES, "acqstream.journal", NOTES_NAME}
)
_LISTING_SUFFIX, _LISTED_SUFFIX = ".xml", ".n5"  # of a file beside a mirror, and of that mirror


def level_name(level: int) -> str:
    """Name of the folder of resolution level `level`, 0 being the full resolution."""
    return FULL_RESOLUTION if level == 0 else f"Downsampled_x{2**level}"


@dataclass(frozen=True, slots=True)
class DatasetFolders:
    """container holds `acqstream.json`, if there is one; levels are the folders of frames, full resolution first.

    is_old: versions 0 or 1, without index files.
    """

    container: Path
    levels: tuple[Path, ...]
    is_old: bool = False


def is_ndtiff(path: Path) -> bool:
    """True if `path` is a container, a level folder, or a file in one of them, or holds containers.

    Damaged ones included.
    """
    folder = path if path.is_dir() else path.parent
    return _is_dataset(folder) or _first_magic(folder) is not None or (folder == path and bool(_datasets_in(folder, 1)))


def container_of(path: Path) -> Path:
    """The container of the dataset at `path`: itself, what holds the level or file, or the only dataset in it."""
    if not path.exists():
        return path  # a dataset that begins has no folder yet
    folder = path if path.is_dir() else path.parent
    if is_level(folder):
        return folder.absolute().parent
    if folder == path and not _is_dataset(folder) and _first_magic(folder) is None:
        inside = _datasets_in(folder, 2)
        is_dataset_in_it = len(inside) == 1 and not is_level(inside[0])  # else it has just begun
        return inside[0] if is_dataset_in_it else folder
    return folder


def is_run(folder: str | os.PathLike[str]) -> bool:
    """True for the folder of a dataset with an index, or of one that begins. Looks at names only, on this machine."""
    place = os.fspath(folder)  # no Path: lists of runs ask this for each of tens of thousands of names
    is_known = os.path.isfile(f"{place}/{INDEX_NAME}") or os.path.isfile(f"{place}/{STATE_NAME}")
    return is_known or os.path.isdir(f"{place}/{FULL_RESOLUTION}")


def run_of_part(folder: Path, name: str, names: Collection[str]) -> str:
    """The run in `folder` that the entry `name` is a part of, by name; "" for a run, and for all that is not a part.

    names: all names in the folder, as a set. Parts are folders and files called after the run and a dot: the folder of
    a mirror with `.view` beside it or a record in the dataset, that `.view`, the XML file of an N5 mirror, the folder
    of a view without a mirror. Reads no file. A run whose name begins with that of another one is no part of it.
    """
    starts = [at for at, character in enumerate(name) if character == "." and name[:at] in names]
    top = os.fspath(folder)
    if not starts or is_run(f"{top}/{name}"):
        return ""
    for at in reversed(starts):
        run, rest = name[:at], name[at + 1 :]
        if not is_run(f"{top}/{run}"):
            continue
        is_part = name.endswith(VIEW_SUFFIX) or f"{name}{VIEW_SUFFIX}" in names or rest in LOG_VIEW_KINDS
        if name.endswith(_LISTING_SUFFIX):
            is_part = _is_listing(name, names)
        if is_part or os.path.isfile(record_path(folder / run, rest[:_MAX_KEY_CHARACTERS])):
            return run
    return ""


def holds_runs(folder: str | os.PathLike[str], name: str, names: Collection[str]) -> bool:
    """True for a folder of a user or a day: it may hold runs, since it is no run, no part of one, and no container.

    names: all names in `folder`. Looks at names only. False for hidden folders, and where the names cannot be read.
    """
    try:
        return is_separate(folder, name, names) and not has_documents(f"{os.fspath(folder)}/{name}")
    except OSError:  # a file, another user's folder, or removed meanwhile
        return False


def is_separate(folder: str | os.PathLike[str], name: str, names: Collection[str]) -> bool:
    """True for what is no run, no part of one, and not hidden, also where nothing has this name yet.

    names: all names in `folder`. Looks at names only.
    """
    if name.startswith(".") or name.endswith(VIEW_SUFFIX) or f"{name}{VIEW_SUFFIX}" in names:
        return False
    return not (is_run(f"{os.fspath(folder)}/{name}") or run_of_part(Path(folder), name, names))


def has_documents(path: str) -> bool:
    """True for a folder with a file that containers have, or datasets that begin. Raises OSError if not readable."""
    with os.scandir(path) as found:
        return any(one.name in _DOCUMENTS and os.path.isfile(one.path) for one in found)


def mirror_parts(name: str, names: Collection[str]) -> Iterator[str]:
    """The names among `names` of what belongs to the mirror `name` itself: its folder, its notes, its XML file."""
    listing = f"{name.removesuffix(_LISTED_SUFFIX)}{_LISTING_SUFFIX}"
    yield from (one for one in (name, f"{name}{VIEW_SUFFIX}") if one in names)
    if listing in names and _is_listing(listing, names):
        yield listing


def _is_listing(name: str, names: Collection[str]) -> bool:
    return f"{name.removesuffix(_LISTING_SUFFIX)}{_LISTED_SUFFIX}{VIEW_SUFFIX}" in names


def is_level(folder: Path) -> bool:
    """Return True for the folder of a resolution level, by its name."""
    return _LEVEL.fullmatch(folder.absolute().name) is not None


def level_of(folder: Path) -> int:
    """The resolution level whose folder this is; 0 for a container."""
    match = _LEVEL.fullmatch(folder.absolute().name)
    factor = int(match["factor"] or 1) if match else 1
    return factor.bit_length() - 1


def overlap_in(summary: Mapping[str, Any]) -> tuple[int, int] | None:
    """Overlap (y, x) in pixels of the tiles of a dataset with this summary; None if its frames are not tiles."""
    overlap = [summary.get(key) for key in ("GridPixelOverlapY", "GridPixelOverlapX")]
    if not summary.get("TiledImageStorage", overlap != [None, None]):
        return None
    y, x = (value if isinstance(value, int) else 0 for value in overlap)
    return y, x


def find_folders(path: Path) -> DatasetFolders:
    """The folders to read for `path`: a container, `Full resolution` or a file in it give all levels.

    The folder of a lower level or a file in it gives that level; a folder that holds a single dataset, that. Raises
    CorruptDataset where the index is lost, UnknownFormat otherwise, with the datasets if there are several.
    """
    folder = path if path.is_dir() else path.parent
    container = container_of(path)
    if level_of(folder):
        return DatasetFolders(container, (folder,), _is_old(folder))
    full = container / FULL_RESOLUTION
    if full.is_dir():
        is_old = _is_old(full)
        return DatasetFolders(container, (full, *_lower_levels(container, is_old=is_old)), is_old)
    return DatasetFolders(container, (container,), _is_old(container))


def stack_paths(folder: Path) -> list[Path]:
    """The `*.tif` files of a folder in order of their names, without `._*.tif`, what a Mac leaves beside them."""
    try:
        paths = [path for path in folder.iterdir() if path.suffix in (".tif", ".TIF")]
        return sorted(path for path in paths if not path.name.startswith("._") and path.is_file())
    except OSError as error:
        raise StorageError.wrap(error, str(folder), "list the folder") from error


def parse_stack_name(name: str) -> tuple[str, int] | None:
    """Stem and number of a stack file, the first one is 0; None for other names."""
    match = _STACK_NAME.fullmatch(name)
    return (match["stem"], int(match["number"] or 0)) if match else None


def has_ndtiff_mark(path: Path) -> bool:
    """False for foreign TIFF files and for stack files whose header is not yet written."""
    return _magic(path) in _MAGICS


def _lower_levels(container: Path, *, is_old: bool) -> list[Path]:
    """Without gaps: a level becomes visible with its index, one of versions 0 and 1 with a stack file."""
    levels: list[Path] = []
    while True:
        folder = container / level_name(len(levels) + 1)
        if not (folder.is_dir() and _first_magic(folder) in _OLD_MAGICS if is_old else (folder / INDEX_NAME).is_file()):
            return levels
        levels.append(folder)


def _is_old(folder: Path) -> bool:
    """True for versions 0 and 1, which have no index file. Raises CorruptDataset if the index is missing."""
    if (folder / INDEX_NAME).is_file():
        return False
    magic = _first_magic(folder)
    if magic in _OLD_MAGICS:
        return True
    if magic is None:
        raise _nothing_found(folder)
    raise CorruptDataset(
        f"{INDEX_NAME} is missing, but stack files exist: `acqstream repair` rebuilds it", path=str(folder)
    )


def _is_dataset(folder: Path) -> bool:
    if is_remote(folder):
        return (folder / INDEX_NAME).is_file() or (folder / FULL_RESOLUTION).is_dir()
    return os.path.exists(folder / INDEX_NAME) or os.path.isdir(folder / FULL_RESOLUTION)


def _datasets_in(folder: Path, limit: int) -> list[Path]:
    """Folders in this one that are datasets by their first sight; remote ones are not searched."""
    if is_remote(folder):
        return []
    try:
        with os.scandir(folder) as found:
            return list(itertools.islice(filter(_is_dataset, map(Path, found)), limit))
    except OSError as error:
        raise StorageError.wrap(error, str(folder), "list the folder") from error


def _nothing_found(folder: Path) -> UnknownFormat:
    datasets = _datasets_in(folder, _MAX_LISTED + 1)
    if len(datasets) > 1:
        names = ", ".join(sorted(path.name for path in datasets[:_MAX_LISTED]))
        more = ", ..." if len(datasets) > _MAX_LISTED else ""
        return UnknownFormat(f"{folder}: holds several datasets, name one of them: {names}{more}")
    return UnknownFormat(
        f"{folder}: no NDTiff dataset: found neither {INDEX_NAME} nor a folder {FULL_RESOLUTION!r} nor "
        "an NDTiff stack file (*.tif)"
    )


def _first_magic(folder: Path) -> bytes | None:
    """Bytes 8 to 11 of the first stack file that has a known mark there; others are foreign or still empty."""
    return next(filter(_MAGICS.__contains__, map(_magic, stack_paths(folder))), None)


def _magic(path: Path) -> bytes:
    file = ReadFile(path)
    magic = file.read(8, 4)
    file.close()
    return magic


def read_display_settings(container: Path) -> dict[str, Any]:
    """The JSON object in the file; empty if the file is missing or damaged: a dataset is readable without colours.

    Raises StorageError where the disk fails.
    """
    path = container / DISPLAY_SETTINGS_NAME
    if not path.is_file():
        return {}
    file = ReadFile(path)
    text = decode_text(file.read(0, _MAX_BYTES)).lstrip()
    file.close()
    try:
        settings, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return {}
    return settings if isinstance(settings, dict) else {}


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
    return dataset / f"{RECORD_PREFIX}{key}{RECORD_SUFFIX}"


def read_records(dataset: Path) -> dict[str, MirrorResult]:
    """All records in a dataset's folder by key, the first MAX_RECORDS by name; none for a dataset on a web server.

    A damaged one reads as "unfinished" with the damage as reason. A mirror that had ended, and whose folder is gone or
    is one of another dataset now, reads as "removed". Of two with one name, the one that lies beside the dataset keeps
    it, and the other one has its path as its name. Raises StorageError if the folder cannot be listed.
    """
    if is_remote(dataset):
        return {}
    try:
        names = sorted(name for name in os.listdir(dataset) if name.startswith(RECORD_PREFIX))
    except OSError as error:
        raise StorageError.wrap(error, str(dataset), "list") from error
    names = [name for name in names if name.endswith(RECORD_SUFFIX)]
    keys = [name.removeprefix(RECORD_PREFIX).removesuffix(RECORD_SUFFIX) for name in names[:MAX_RECORDS]]
    place, own_id = Path(os.path.realpath(dataset)), dataset_id(dataset) if keys else ""
    records = {key: found for key in keys if (found := read_record(dataset, key)) is not None}
    folders = {key: recorded_folder(place, key, found) for key, found in records.items()}
    owners: dict[str, str] = {}
    for key in sorted(records, key=lambda key: (not _is_beside(place, folders[key]), key)):
        owners.setdefault(records[key].name, key)
    return {
        key: replace(
            found,
            name=found.name if owners[found.name] == key else found.path or key,
            state="removed" if _is_removed(folders[key], own_id, found) else found.state,
        )
        for key, found in records.items()
    }


def _is_beside(dataset: Path, folder: Path) -> bool:
    """True for the folder of a mirror beside its dataset, under its name, and for levels in the dataset itself."""
    return folder == dataset or (folder.parent == dataset.parent and folder.name.startswith(f"{dataset.name}."))


def _is_removed(folder: Path, own_id: str, recorded: MirrorResult) -> bool:
    """True if a mirror ended with frames, and its folder is gone or not its own; of a failed one, with its notes."""
    if not recorded.frames or recorded.state not in ("complete", "interrupted", "failed"):
        return recorded.state == "removed"
    if os.path.lexists(folder):
        return not is_mirror_of(folder, own_id)
    return not (recorded.state == "failed" and os.path.lexists(f"{folder}{VIEW_SUFFIX}"))


def is_mirror_of(mirror: Path, own_id: str) -> bool:
    """False if the notes beside a mirror name another dataset than that with this id; "": of another writer.

    Notes that cannot be read name none.
    """
    try:
        return not own_id or id_of_notes(mirror.with_name(f"{mirror.name}{VIEW_SUFFIX}")) in ("", own_id)
    except StorageError:
        return True


def id_of_notes(folder: Path) -> str:
    """The id of the dataset that a folder of notes is of; "" if it has none. Raises StorageError."""
    try:
        is_folder = os.path.isdir(folder)
        found = read_json_object(folder / _CHECKPOINT, is_ours=True).get("dataset_id") if is_folder else ""
    except (FileMissing, CorruptDataset):
        return ""
    return found if isinstance(found, str) else ""


def recorded_folder(dataset: Path, key: str, result: MirrorResult) -> Path:
    """The folder of a mirror by its record; the dataset's own for levels.

    What lay beside the dataset under its name lies beside it still, also if both were renamed.
    """
    place = Path(os.path.normpath(dataset.absolute() / result.path))
    is_beside = result.path.startswith("../") and place.name.endswith(f".{key}") and "/" not in result.path[3:]
    return dataset.absolute().with_name(f"{dataset.absolute().name}.{key}") if is_beside else place


def read_record(dataset: Path, key: str) -> MirrorResult | None:
    """One record; None where it does not exist."""
    path = record_path(dataset, key)
    try:
        return parsed(read_json_object(path, MAX_RECORD_BYTES, is_ours=True), path, _parse)
    except FileMissing:
        return None
    except (CorruptDataset, StorageError) as error:
        return MirrorResult(name=key, state="unfinished", reason=f"its record cannot be read: {error}")


def read_receipt(folder: str) -> Receipt | None:
    """The receipt of a finished dataset, None where there is none. Raises CorruptDataset, StorageError."""
    path = Path(folder, RECEIPT_NAME)
    try:
        return parsed(read_json_object(path, is_ours=True), path, Receipt.of)
    except FileMissing:
        return None


def encode_record(result: MirrorResult) -> dict[str, Any]:
    """Content of the file."""
    return {"format": "acqstream-mirror", "version": 1, **result.as_dict()}


def _parse(fields: Fields) -> MirrorResult:
    if fields.values.get("format") != "acqstream-mirror" or fields.values.get("version") != 1:
        raise ValueError("is not a record of a mirror, version 1")
    return MirrorResult.of(fields)


def read_notes(container: Path) -> tuple[tuple[RunNote, ...], str]:
    """The notes on the run whose dataset this is, in order; and what is wrong with the last one, empty if nothing.

    A note of which a power cut left a part is not among them. None over http. Raises CorruptDataset, StorageError.
    """
    path = container / NOTES_NAME
    if is_remote(path):
        return (), ""
    try:
        content = read_small_file(path, MAX_NOTES_BYTES)
    except FileMissing:
        return (), ""
    try:
        notes, end = parse_notes(content)
    except ValueError as error:
        raise CorruptDataset(str(error), path=str(path)) from error
    torn = f"{path}: the last note is torn, as by a power cut, and left out" if end < len(content) else ""
    return tuple(notes[:MAX_NOTES]), torn
