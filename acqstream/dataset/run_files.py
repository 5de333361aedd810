"""The files of a run: what belongs to it, whether a program has them open, whether two runs have the same, copies."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import xxhash

from acqstream.dataset.run_list import disk_bytes, parts_of
from acqstream.errors import (
    AcqStreamError,
    CorruptDataset,
    DatasetError,
    DatasetExists,
    DatasetLocked,
    StorageError,
)
from acqstream.formats.ndtiff.completion import STATE_NAME, StateFile, dataset_id
from acqstream.formats.ndtiff.folders import (
    RECORD_PREFIX,
    VIEW_SUFFIX,
    id_of_notes,
    is_mirror_of,
    is_run,
    read_receipt,
    read_records,
    recorded_folder,
    run_of_part,
)
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.model.dataset_name import name_key
from acqstream.storage.files.directory_lock import LOCK_NAME, is_locked
from acqstream.storage.files.disk import Disk, write_all
from acqstream.storage.files.folder_tree import is_link, refuse_link, walk
from acqstream.storage.files.read_file import ReadFile, data_runs
from acqstream.storage.files.small_file import read_json_object

JOURNAL_NAME = "acqstream.journal"
_REFERENCE_NOTE = "acqstream-hsds.json"
_REFERENCE_FORMAT = "acqstream-hsds-reference"
_PIECE_BYTES = 2**23
_NO_LOCKS = (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP)  # of a network mount: the state tells

Progress = Callable[[int], None]
"""Gets the number of bytes that were copied or compared since the last call."""


class RunFiles:
    """A run, or a mirror without its dataset, at `path`; parts are the names of what lies beside it.

    Raises DatasetError if nothing of the kind is there, or a part belongs to another dataset; StorageError for links.
    """

    def __init__(self, path: Path) -> None:
        self.path = placed(path)
        refuse_link(str(self.path))
        self.is_dataset = is_run(self.path)
        self.parts = parts_of(self.path) if self.path.parent.is_dir() else []
        if not (self.is_dataset or (self.path.is_dir() and f"{self.path.name}{VIEW_SUFFIX}" in self.parts)):
            raise DatasetError(
                f"{path} is not a run: expected the folder of a dataset, or of a mirror made by acqstream"
            )
        own_id = dataset_id(self.path)
        for part in self.parts:
            refuse_link(str(self.path.parent / part))
            self._check_part(self.path.parent / part)
            other = id_of_notes(self.path.parent / part)
            if own_id and other not in ("", own_id):
                raise DatasetError(f"{self.path.parent / part} is of another dataset than {self.path}: remove it first")

    def _check_part(self, part: Path) -> None:
        """Raises DatasetError if datasets lie in a part: it is a folder of runs that has the name of a part."""
        for folder, names in walk(str(part)):
            if not {STATE_NAME, INDEX_NAME, JOURNAL_NAME}.isdisjoint(names):
                raise DatasetError(f"{folder} is a run of its own in {part}, a part of {self.path}: move it out first")

    @property
    def names(self) -> list[str]:
        """All parts. The dataset is last, and notes come after what they show to be a part."""
        return [*sorted(self.parts, key=lambda part: part.endswith(VIEW_SUFFIX)), self.path.name]

    @property
    def has_frames(self) -> bool:
        """Not if a receipt says that none was stored. Without one, any file that is not of acqstream may be frames."""
        with contextlib.suppress(AcqStreamError):
            receipt = read_receipt(str(self.path))
            if receipt is not None:
                return receipt.stored > 0
        files = (Path(folder, name) for folder, names in walk(str(self.path)) for name in names)
        return any(not file.name.startswith("acqstream.") and file.lstat().st_size for file in files)

    @property
    def size_bytes(self) -> int:
        """Disk usage of all parts."""
        return sum(disk_bytes(self.path.parent / name) for name in self.names)

    @property
    def is_only_copy(self) -> bool:
        """As far as is seen here: a dataset with frames, or a mirror whose dataset is gone.

        A mirror is no copy of a dataset, which alone has the metadata and the checksums of its frames.
        """
        if self.is_dataset:
            return self.has_frames
        run = run_of_part(self.path.parent, self.path.name, set(os.listdir(self.path.parent)))
        return not (run and is_mirror_of(self.path, dataset_id(self.path.parent / run)))

    def mirrors_elsewhere(self) -> list[Path]:
        """Folders of recorded mirrors that do not lie beside the dataset: they are no parts of it."""
        records = read_records(self.path) if self.is_dataset else {}
        found = [recorded_folder(self.path, key, one) for key, one in records.items()]
        return [place for place in found if place.parent != self.path.parent and place != self.path and place.exists()]

    def check_closed(self, folder: Path, name: str, *, is_forced: bool = False) -> None:
        """Raises DatasetLocked if a program records the run or makes a mirror of it.

        Its parts lie in `folder` under `name`. is_forced: an acquisition that is unfinished by its state, and that no
        program has locked here, is no reason.
        """
        place = folder / name
        if is_held(place / JOURNAL_NAME):
            raise DatasetLocked(f"{self.path} is being recorded; wait for its end, or `acqstream stop` it")
        state = StateFile(place)
        state.refresh()
        with contextlib.suppress(CorruptDataset):
            if state.state is not None and state.state.writing and not is_forced:
                text = f"{self.path} is {state.state} by its acqstream.json, maybe on another machine"
                raise DatasetLocked(f"{text}; a daemon that starts on this directory ends what was interrupted")
        for part in self.parts:
            if is_held(folder / renamed(part, self.path.name, name) / LOCK_NAME):
                raise DatasetLocked(f"{self.path.parent / part} is being made by another process; wait for its end")


def fingerprint(folder: Path, names: Iterable[str]) -> str:
    """Differs once a file of these parts of a run has come, gone, or changed in size or time; locks do not count."""
    total = 0
    for name in names:
        places = walk(str(folder / name)) if (folder / name).is_dir() else [(str(folder), [name])]
        for place, files in places:
            for file in files:
                if file == LOCK_NAME:
                    continue
                path = os.path.join(place, file)
                try:
                    found = os.stat(path)
                    facts = f"{found.st_size} {found.st_mtime_ns}"
                except FileNotFoundError:  # a link to nothing
                    facts = ""
                line = f"{os.path.relpath(path, folder)} {facts}"
                total += xxhash.xxh3_128_intdigest(line.encode("utf-8", "surrogateescape"))
    return f"{total % 2**128:032x}"


def same_frames(run: Path, other: Path, on_bytes: Progress = lambda _count: None) -> bool:
    """True if `other` has every file of the dataset `run`, byte by byte; records of mirrors may differ."""
    for folder, names in walk(str(run)):
        for name in names:
            if name == LOCK_NAME or name.startswith(RECORD_PREFIX):
                continue
            path = Path(folder, name)
            copy = other / path.relative_to(run)
            is_linked = is_link(str(path)) and is_link(str(copy)) and not os.path.isabs(os.readlink(path))
            if is_linked and os.readlink(path) == os.readlink(copy):
                continue
            if is_link(str(path)) or is_link(str(copy)) or not copy.is_file():
                return False
            ranges = [(0, path.stat().st_size)]
            if copy.stat().st_size != ranges[0][1] or _digest(path, ranges, on_bytes) != _digest(copy, ranges):
                return False
    return True


def copy_part(disk: Disk, source: Path, target: Path, dataset: Path, on_bytes: Progress) -> None:
    """Copy a file, a folder, or a link to the dataset itself, and compare files."""
    try:
        if is_link(str(source)):
            if os.path.realpath(source) != os.path.realpath(dataset) or os.path.isabs(os.readlink(source)):
                raise DatasetError(f"{source} is a link out of the run, which is not copied: remove it first")
            disk.link_folder(os.readlink(source), str(target))
        elif source.is_dir():
            disk.mkdir(str(target))
            for name in sorted(os.listdir(source)):
                if name != LOCK_NAME:
                    copy_part(disk, source / name, target / name, dataset, on_bytes)
            disk.sync_directory(str(target))
        else:
            _copy_file(disk, source, target, on_bytes)
    except OSError as error:
        raise StorageError.wrap(error, str(target), "cannot copy to") from error


def _copy_file(disk: Disk, source: Path, target: Path, on_bytes: Progress) -> None:
    file, digest = ReadFile(source), xxhash.xxh3_128()
    try:
        size, ranges = file.size(), data_runs(source)
        descriptor = disk.open(str(target), create=True)
        try:
            for start, end in ranges:
                for at in range(start, end, _PIECE_BYTES):
                    piece = file.read(at, min(_PIECE_BYTES, end - at))
                    digest.update(piece)
                    write_all(disk, descriptor, [piece], at)
                    on_bytes(len(piece))
            disk.truncate(descriptor, size)
            disk.fdatasync(descriptor)
        finally:
            disk.close(descriptor)
    finally:
        file.close()
    if target.stat().st_size != size or _digest(target, ranges) != digest.digest():
        raise CorruptDataset("the copy differs from what was read: disk or memory of this PC fail", path=str(target))


def _digest(path: Path, ranges: Sequence[tuple[int, int]], on_bytes: Progress = lambda _count: None) -> bytes:
    file, digest = ReadFile(path), xxhash.xxh3_128()
    try:
        for start, end in ranges:
            for at in range(start, end, _PIECE_BYTES):
                piece = file.read(at, min(_PIECE_BYTES, end - at))
                digest.update(piece)
                on_bytes(len(piece))
    finally:
        file.close()
    return digest.digest()


def placed(path: Path) -> Path:
    """The path with a name: "." and what ends with ".." have none."""
    return Path(os.path.abspath(path))


def renamed(part: str, old: str, new: str) -> str:
    """The name of a part if its run has another name; the XML file of a mirror has its name without the suffix."""
    is_listing = not part.startswith(old)
    return f"{new.removesuffix('.n5')}.xml" if is_listing else f"{new}{part[len(old) :]}"


def check_space(disk: Disk, run: RunFiles, target: Path) -> None:
    needed = run.size_bytes
    try:
        free = disk.free_bytes(str(target.parent))
        if free < needed:
            raise OSError(errno.ENOSPC, f"it needs {needed:,} bytes, and {free:,} are free")
    except OSError as error:
        raise StorageError.wrap(error, str(target), "cannot copy to") from error


def check_free(run: RunFiles, target: Path) -> None:
    """Raises DatasetExists if the name of a part is taken, also in other letters of one name."""
    wanted = {name_key(renamed(name, run.path.name, target.name)) for name in run.names}
    taken = [name for name in os.listdir(target.parent) if name_key(name) in wanted]
    is_same_place = target.absolute().parent == run.path.parent
    for name in taken:
        if not (is_same_place and name in run.names and name_key(run.path.name) == name_key(target.name)):
            raise DatasetExists(f"{target.parent / name} already exists; use another name")
    if run.path in target.absolute().parents:
        raise DatasetError(f"{target} is inside {run.path}")
    if is_same_place and target.name == run.path.name:
        raise DatasetExists(f"{target} is the run itself")


def check_rename(run: RunFiles, name: str) -> None:
    """Raises DatasetError for a mirror whose tables name the stack files by the dataset's name."""
    for part in run.parts if name != run.path.name else ():
        note = run.path.parent / part / _REFERENCE_NOTE
        if note.exists() and read_json_object(note).get("format") == _REFERENCE_FORMAT:
            text = f"{run.path.parent / part} refers to the frames of {run.path.name} by that name"
            raise DatasetError(f"{text}: keep the name, or remove this mirror first")


def is_held(path: Path) -> bool:
    try:
        return is_locked(str(path))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise StorageError.wrap(error, str(path), "see whether a program uses") from error
