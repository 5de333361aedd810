"""Moves, copies and removes a run with all its parts, so that a process that is killed leaves nothing half.

The parts go through a hidden folder beside the target, `.NAME.moving-...`: no dataset can have such a name, and no list
and no daemon looks into it. The dataset enters and leaves it last, so a run is never seen without its dataset. What a
killed process has left there, the same command finishes; what another program has open is moved back.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import xxhash

from acqstream.dataset.run_list import disk_bytes, parts_of
from acqstream.errors import (
    AcqStreamError,
    ConfigError,
    CorruptDataset,
    DatasetError,
    DatasetExists,
    DatasetLocked,
    FileMissing,
    StorageError,
)
from acqstream.formats.ndtiff.completion import StateFile, dataset_id
from acqstream.formats.ndtiff.folders import (
    FULL_RESOLUTION,
    RECORD_PREFIX,
    VIEW_SUFFIX,
    encode_record,
    is_run,
    read_records,
    record_path,
    recorded_folder,
    run_of_part,
)
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.model.dataset_name import name_key, name_problem, normal_name
from acqstream.storage.files.atomic_file import replace_file
from acqstream.storage.files.directory_lock import LOCK_NAME, is_locked
from acqstream.storage.files.disk import Disk, LocalDisk, write_all
from acqstream.storage.files.folder_tree import is_link, make_folder, refuse_link, remove_tree, walk
from acqstream.storage.files.read_file import ReadFile, data_runs
from acqstream.storage.files.small_file import read_json_object, read_small_file

JOURNAL_NAME = "acqstream.journal"
_VERIFIED = ".verified"  # in the folder of a copy, once all of it has been compared
_NOTE, _CHECKPOINT, _REFERENCE_NOTE = "mirror.json", "view.json", "acqstream-hsds.json"
_REFERENCE_FORMAT = "acqstream-hsds-reference"
_PIECE_BYTES = 2**23
_STAGE = re.compile(r"\..+\.(moving|copying|removing)-[0-9a-f]{12}")

Progress = Callable[[int], None]
"""Gets the number of bytes that were copied or compared since the last call."""


class RunFiles:
    """A run, or a mirror without its dataset, at `path`; parts are the names of what lies beside it.

    Raises DatasetError if nothing of the kind is there, or a part belongs to another dataset; StorageError for links.
    """

    def __init__(self, path: Path) -> None:
        self.path = _placed(path)
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
            other = _dataset_id_of(self.path.parent / part)
            if own_id and other not in ("", own_id):
                raise DatasetError(f"{self.path.parent / part} is of another dataset than {self.path}: remove it first")

    @property
    def names(self) -> list[str]:
        """All parts. The dataset is last, and notes come after what they show to be a part."""
        return [*sorted(self.parts, key=lambda part: part.endswith(VIEW_SUFFIX)), self.path.name]

    @property
    def has_frames(self) -> bool:
        """An index has entries. Not for a mirror."""
        places = (self.path / INDEX_NAME, self.path / FULL_RESOLUTION / INDEX_NAME)
        return any(place.is_file() and place.stat().st_size for place in places)

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
        return not run_of_part(self.path.parent, self.path.name, set(os.listdir(self.path.parent)))

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
        if _is_held(place / JOURNAL_NAME):
            raise DatasetLocked(f"{self.path} is being recorded; wait for its end, or `acqstream stop` it")
        state = StateFile(place)
        state.refresh()
        with contextlib.suppress(CorruptDataset):
            if state.state is not None and state.state.writing and not is_forced:
                text = f"{self.path} is {state.state} by its acqstream.json, maybe on another machine"
                raise DatasetLocked(f"{text}; a daemon that starts on this directory ends what was interrupted")
        for part in self.parts:
            if _is_held(folder / _renamed(part, self.path.name, name) / LOCK_NAME):
                raise DatasetLocked(f"{self.path.parent / part} is being made by another process; wait for its end")


def was_interrupted(path: Path) -> bool:
    """True if a removal of this run was begun, and it has no dataset any more."""
    path = _placed(path)
    return not os.path.lexists(path) and _stage(path, "removing", path).exists()


def remove_run(path: Path, *, is_forced: bool = False, disk: Disk | None = None) -> None:
    """Remove a run with all its parts, or a mirror alone; the same call finishes an earlier one that was killed.

    Raises DatasetLocked if it is open, DatasetError if nothing of the kind is there, StorageError.
    """
    path = _placed(path)
    disk, stage = disk or LocalDisk(), _stage(path, "removing", path)
    if not stage.exists() or os.path.lexists(path):
        if (stage / path.name).exists():
            _empty(disk, stage, path.name)
            raise DatasetExists(f"{path} is newer than the run whose removal was interrupted, and which is removed now")
        run = RunFiles(path)
        run.check_closed(path.parent, path.name, is_forced=is_forced)
        _enter(disk, run, stage, path.name, is_forced=is_forced)
    _empty(disk, stage, path.name)


def move_run(source: Path, target: Path, *, on_bytes: Progress = lambda _count: None, disk: Disk | None = None) -> None:
    """Give a run with all its parts another place or name; on another disk it is copied, compared and removed.

    The same call finishes an earlier one that was killed. Raises DatasetExists if the name is taken, ConfigError for a
    name that no dataset can have, DatasetLocked if it is open, DatasetError, StorageError.
    """
    source, target = _placed(source), _placed(target)
    disk, stage = disk or LocalDisk(), _stage(target, "moving", source)
    _check_target(target)
    if not os.path.lexists(source) and target.exists() and _stage(source, "removing", source).exists():
        remove_run(source, disk=disk)  # it was copied and compared, and the process was killed
        return
    if not stage.exists() and _is_on_another_disk(source, target):
        if _stage(target, "copying", source).exists() or not _is_copied(source, target, on_bytes):
            copy_run(source, target, on_bytes=on_bytes, disk=disk)
        remove_run(source, disk=disk)
        return
    if os.path.lexists(source):
        run = RunFiles(source)
        if owner := run_of_part(run.path.parent, run.path.name, set(os.listdir(run.path.parent))):
            raise DatasetError(f"{source} is a part of {run.path.with_name(owner)}: move that")
        _check_free(run, target, is_resumed=stage.exists())
        _check_rename(run, target.name)
        run.check_closed(source.parent, source.name)
        _enter(disk, run, stage, target.name)
    elif not stage.exists():
        raise DatasetError(f"{source} is not a run: nothing is there")
    _settle(disk, stage, source, target)
    _leave(disk, stage, target)


def copy_run(source: Path, target: Path, *, on_bytes: Progress = lambda _count: None, disk: Disk | None = None) -> None:
    """Copy a run with all its parts, and compare the copy with what was read; it appears when all of it is forced.

    Holes stay holes. Raises as `move_run`, CorruptDataset if the copy is different.
    """
    source, target = _placed(source), _placed(target)
    disk, stage = disk or LocalDisk(), _stage(target, "copying", source)
    _check_target(target)
    if not (stage / _VERIFIED).exists():
        run = RunFiles(source)
        _check_free(run, target)
        _check_rename(run, target.name)
        run.check_closed(source.parent, source.name)
        if stage.exists():
            remove_tree(disk, str(stage))
        _check_space(disk, run, target)
        try:
            make_folder(disk, str(stage))
            for name in run.names:
                _copy(
                    disk, run.path.parent / name, stage / _renamed(name, source.name, target.name), run.path, on_bytes
                )
            run.check_closed(source.parent, source.name)  # nobody has begun to change it meanwhile
            _settle(disk, stage, source, target)
            replace_file(disk, str(stage / _VERIFIED), b"")
        except AcqStreamError:
            with contextlib.suppress(AcqStreamError):  # the first error counts
                remove_tree(disk, str(stage))
            raise
    _leave(disk, stage, target)


def same_frames(run: Path, other: Path, on_bytes: Progress = lambda _count: None) -> bool:
    """True if `other` has every file of the dataset `run`, byte by byte; records of mirrors may differ."""
    for folder, names in walk(str(run)):
        for name in names:
            if name == LOCK_NAME or name.startswith(RECORD_PREFIX):
                continue
            path = Path(folder, name)
            copy = other / path.relative_to(run)
            if is_link(str(path)) or is_link(str(copy)) or not copy.is_file():
                return False
            ranges = [(0, path.stat().st_size)]
            if copy.stat().st_size != ranges[0][1] or _digest(path, ranges, on_bytes) != _digest(copy, ranges):
                return False
    return True


def interrupted_in(folder: Path) -> list[Path]:
    """What killed commands have left in a folder: the same command finishes each. Raises OSError."""
    return sorted(path for path in folder.iterdir() if _STAGE.fullmatch(path.name) and path.is_dir())


def _is_copied(source: Path, target: Path, on_bytes: Progress) -> bool:
    """True if a killed command had copied all that is left of a run, and had only to remove it."""
    for name in RunFiles(source).names if target.exists() else ():
        copy = target.parent / _renamed(name, source.name, target.name)
        if not copy.exists() or not (name.endswith(VIEW_SUFFIX) or same_frames(source.parent / name, copy, on_bytes)):
            return False
    return target.exists()


def _enter(disk: Disk, run: RunFiles, stage: Path, name: str, *, is_forced: bool = False) -> None:
    """Rename all parts into the stage, the dataset last; back if one cannot be moved, or was opened meanwhile."""
    make_folder(disk, str(stage))
    moved: list[tuple[str, str]] = []
    try:
        for part in run.names:
            moved.append((str(run.path.parent / part), str(stage / _renamed(part, run.path.name, name))))
            disk.replace(*moved[-1])
        run.check_closed(stage, name, is_forced=is_forced)  # no other program finds it now: what is open was before
        disk.sync_directory(str(stage))
        disk.sync_directory(str(run.path.parent))
    except (OSError, DatasetLocked, StorageError) as error:
        for old, new in reversed(moved):
            if os.path.lexists(new) and not os.path.lexists(old):
                disk.replace(new, old)
        with contextlib.suppress(OSError):
            os.rmdir(stage)
        if isinstance(error, OSError):
            raise StorageError.wrap(error, moved[-1][0], "cannot move") from error
        raise


def _empty(disk: Disk, stage: Path, last: str) -> None:
    """Remove a stage and all in it, the dataset last."""
    refuse_link(str(stage))
    for name in sorted(os.listdir(stage), key=lambda name: name == last):
        if os.path.isdir(stage / name):
            remove_tree(disk, str(stage / name))
    remove_tree(disk, str(stage))


def _leave(disk: Disk, stage: Path, target: Path) -> None:
    """Rename all parts out of the stage, the dataset last, and remove the stage."""
    try:
        for name in sorted(os.listdir(stage), key=lambda name: name == target.name):
            if name == _VERIFIED:
                continue
            if os.path.lexists(target.parent / name):
                raise DatasetExists(f"{target.parent / name} already exists; remove it, and repeat the command")
            disk.replace(str(stage / name), str(target.parent / name))
        disk.sync_directory(str(target.parent))
    except OSError as error:
        raise StorageError.wrap(error, str(stage), "cannot move out of") from error
    remove_tree(disk, str(stage))


def _settle(disk: Disk, stage: Path, source: Path, target: Path) -> None:
    """Make the notes in the stage name the new place; again changes nothing."""
    dataset = stage / target.name
    if is_run(dataset):
        for key, record in read_records(dataset).items():
            if record.path == ".":
                continue
            place = recorded_folder(source, key, record)
            is_part = place == source.absolute().with_name(f"{source.name}.{key}")
            path = f"../{target.name}.{key}" if is_part else str(place)
            if path != record.path:
                content = json.dumps(encode_record(replace(record, path=path))).encode()
                replace_file(disk, str(record_path(dataset, key)), content)
    for name in os.listdir(stage):
        note = stage / name / _NOTE
        if name.endswith(VIEW_SUFFIX) and note.exists():
            container = str(target.absolute().parent / name.removesuffix(VIEW_SUFFIX))
            content = json.dumps({**read_json_object(note, is_ours=True), "container": container}).encode()
            replace_file(disk, str(note), content)
        if name.endswith(".xml") and source.name != target.name:
            text = read_small_file(stage / name)
            for suffix in ("", ".n5"):  # of a mirror alone, or of a dataset with it
                text = text.replace(f">{source.name}{suffix}<".encode(), f">{target.name}{suffix}<".encode(), 1)
            replace_file(disk, str(stage / name), text)


def _copy(disk: Disk, source: Path, target: Path, dataset: Path, on_bytes: Progress) -> None:
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
                    _copy(disk, source / name, target / name, dataset, on_bytes)
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


def _placed(path: Path) -> Path:
    """The path with a name: "." and what ends with ".." have none."""
    return Path(os.path.abspath(path))


def _stage(place: Path, verb: str, source: Path) -> Path:
    """The hidden folder for what is done to `source`, beside `place`."""
    digest = hashlib.sha256(os.fsencode(source.absolute())).hexdigest()[:12]
    return place.absolute().with_name(f".{place.name}.{verb}-{digest}")


def _renamed(part: str, old: str, new: str) -> str:
    """The name of a part if its run has another name; the XML file of a mirror has its name without the suffix."""
    is_listing = not part.startswith(old)
    return f"{new.removesuffix('.n5')}.xml" if is_listing else f"{new}{part[len(old) :]}"


def _check_space(disk: Disk, run: RunFiles, target: Path) -> None:
    needed = run.size_bytes
    try:
        free = disk.free_bytes(str(target.parent))
        if free < needed:
            raise OSError(errno.ENOSPC, f"it needs {needed:,} bytes, and {free:,} are free")
    except OSError as error:
        raise StorageError.wrap(error, str(target), "cannot copy to") from error


def _check_target(target: Path) -> None:
    problem = name_problem(normal_name(target.name))
    if problem:
        raise ConfigError(f"a run cannot be called {target.name!r:.120}: {problem}")
    if not target.parent.is_dir():
        raise FileMissing(FileNotFoundError("no such folder"), str(target.parent), "move or copy a run into")


def _check_free(run: RunFiles, target: Path, *, is_resumed: bool = False) -> None:
    """Raises DatasetExists if the name of a part is taken, also in other letters of one name."""
    wanted = {name_key(_renamed(name, run.path.name, target.name)) for name in run.names}
    taken = [] if is_resumed else [name for name in os.listdir(target.parent) if name_key(name) in wanted]
    is_same_place = target.absolute().parent == run.path.parent
    for name in taken:
        if not (is_same_place and name in run.names and name_key(run.path.name) == name_key(target.name)):
            raise DatasetExists(f"{target.parent / name} already exists; use another name")
    if run.path in target.absolute().parents:
        raise DatasetError(f"{target} is inside {run.path}")
    if is_same_place and target.name == run.path.name:
        raise DatasetExists(f"{target} is the run itself")


def _check_rename(run: RunFiles, name: str) -> None:
    """Raises DatasetError for a mirror whose tables name the stack files by the dataset's name."""
    for part in run.parts if name != run.path.name else ():
        note = run.path.parent / part / _REFERENCE_NOTE
        if note.exists() and read_json_object(note).get("format") == _REFERENCE_FORMAT:
            text = f"{run.path.parent / part} refers to the frames of {run.path.name} by that name"
            raise DatasetError(f"{text}: keep the name, or remove this mirror first")


def _dataset_id_of(part: Path) -> str:
    """The dataset that a folder of notes is of; "" if it has none."""
    try:
        found = read_json_object(part / _CHECKPOINT, is_ours=True).get("dataset_id") if part.is_dir() else ""
    except (FileMissing, CorruptDataset):
        return ""
    return found if isinstance(found, str) else ""


def _is_held(path: Path) -> bool:
    try:
        return is_locked(str(path))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StorageError.wrap(error, str(path), "see whether a program uses") from error


def _is_on_another_disk(source: Path, target: Path) -> bool:
    return source.exists() and os.stat(source).st_dev != os.stat(target.absolute().parent).st_dev
