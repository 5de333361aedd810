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
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from acqstream.dataset.run_files import (
    Progress,
    RunFiles,
    check_free,
    check_rename,
    check_space,
    copy_part,
    fingerprint,
    is_held,
    placed,
    renamed,
    same_frames,
)
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
from acqstream.formats.ndtiff.folders import (
    VIEW_SUFFIX,
    encode_record,
    is_run,
    read_record,
    read_records,
    record_path,
    recorded_folder,
    run_of_part,
)
from acqstream.model.dataset_name import name_problem, normal_name
from acqstream.storage.files.atomic_file import replace_file
from acqstream.storage.files.directory_lock import LOCK_NAME, DirectoryLock
from acqstream.storage.files.disk import Disk, LocalDisk
from acqstream.storage.files.folder_tree import is_link, make_folder, refuse_link, remove_tree, walk
from acqstream.storage.files.small_file import read_json_object, read_small_file

_CHECKED = ".checked"  # in a stage, once its command is sure and has only to be finished; of a copy: its fingerprint
_SETTLED = ".settled-"  # notes that name the new place, until they replace those of the old one
_NOTE = "mirror.json"
_STAGE = re.compile(r"\..+\.(moving|copying|removing)-[0-9a-f]{12}")


def finish_removal(path: Path, *, disk: Disk | None = None) -> bool:
    """Finish what a killed command was removing, and return True; undo it where the command was not sure yet."""
    path = placed(path)
    stage = _stage(path, "removing", path)
    if not stage.exists():
        return False
    disk = disk or LocalDisk()
    with _held(disk, stage):
        is_sure = (stage / _CHECKED).exists() and not os.path.lexists(path)
        if is_sure:
            _empty(disk, stage, path.name)
        elif not (stage / _CHECKED).exists():
            _put_back(disk, stage, path, path.name)
    return is_sure


def remove_run(
    path: Path, *, copy: Path | None = None, known: str = "", is_forced: bool = False, disk: Disk | None = None
) -> None:
    """Remove a run with all its parts, or a mirror alone; the same call finishes an earlier one that was killed.

    copy: another folder with the same files, which is compared first, and has to be there when this one is gone. known:
    the `fingerprint` that the run must have. Raises DatasetLocked if it is open, DatasetError if nothing of the kind is
    there, or the copy or the fingerprint differs, StorageError.
    """
    path = placed(path)
    disk, stage = disk or LocalDisk(), _stage(path, "removing", path)
    with _held(disk, stage):
        if not (stage / _CHECKED).exists():
            _put_back(disk, stage, path, path.name)  # a killed command was not sure yet
            run = RunFiles(path)
            run.check_closed(path.parent, path.name, is_forced=is_forced)
            known = known or (fingerprint(path.parent, run.names) if copy is not None else "")
            found = "" if copy is None else _checked_copy(disk, path, copy)
            _enter(disk, run, stage, path.name, is_forced=is_forced)
            # No other program finds the run now, so what is seen here stays so.
            if known and known != fingerprint(stage, run.names):
                _put_back(disk, stage, path, path.name)
                raise DatasetError(f"{path} was changed while it was compared with its copy; nothing was removed")
            if copy is not None and found != fingerprint(copy.parent, [copy.name]):
                _put_back(disk, stage, path, path.name)
                raise DatasetError(f"{copy} is no copy: it changes with {path}; nothing was removed")
            _mark(disk, stage, path, path.name)
        elif os.path.lexists(path):
            _empty(disk, stage, path.name)
            raise DatasetExists(f"{path} is newer than the run whose removal was interrupted, and which is removed now")
        _empty(disk, stage, path.name)


def move_run(source: Path, target: Path, *, on_bytes: Progress = lambda _count: None, disk: Disk | None = None) -> None:
    """Give a run with all its parts another place or name; on another disk it is copied, compared and removed.

    The same call finishes an earlier one that was killed. Raises DatasetExists if the name is taken, ConfigError for a
    name that no dataset can have, DatasetLocked if it is open, DatasetError also if it changed meanwhile, StorageError.
    """
    source, target, disk = placed(source), placed(target), disk or LocalDisk()
    _check_target(target)
    if finish_removal(source, disk=disk) and target.exists():  # it was copied and compared, and the process was killed
        return
    if _is_on_another_disk(source, target) or not _rename(disk, source, target):
        known = fingerprint(source.parent, RunFiles(source).names)
        if _stage(target, "copying", source).exists() or not _is_copied(source, target, on_bytes):
            copy_run(source, target, on_bytes=on_bytes, disk=disk)
        try:
            remove_run(source, known=known, disk=disk)
        except StorageError as error:
            text = f"the copy at {target} is complete, the original could not be removed, repeat the command"
            raise StorageError.wrap(error, str(source), text) from error


def _rename(disk: Disk, source: Path, target: Path) -> bool:
    """Move a run on one disk; False if the system says that it is another one."""
    stage = _stage(target, "moving", source)
    if not (os.path.lexists(source) or stage.exists()):
        raise DatasetError(f"{source} is not a run: nothing is there")
    with _held(disk, stage):
        is_begun = (stage / _CHECKED).exists()
        if not is_begun:
            _put_back(disk, stage, source, target.name)
            run = RunFiles(source)
            if owner := run_of_part(run.path.parent, run.path.name, set(os.listdir(run.path.parent))):
                raise DatasetError(f"{source} is a part of {run.path.with_name(owner)}: move that")
            check_free(run, target)
            check_rename(run, target.name)
            run.check_closed(source.parent, source.name)
            try:
                _enter(disk, run, stage, target.name)
            except StorageError as error:
                if error.errno != errno.EXDEV:
                    raise
                return False
        try:
            notes = list(_settled_notes(stage, source, target))
            if not is_begun:
                replace_file(disk, str(stage / _CHECKED), b"")
            _settle(disk, stage, notes)
        except (AcqStreamError, OSError) as error:
            if is_begun:  # parts of it may be at the target
                text = "the run waits in a hidden folder, repeat the command"
                if not isinstance(error, OSError):
                    raise DatasetError(f"{text}: {error}") from error
                raise StorageError.wrap(error, str(stage), text) from error
            _undo(disk, stage, source, target.name, error)
        _leave(disk, stage, target)
        if is_begun and os.path.lexists(source):
            raise DatasetExists(f"{source} is newer than the run that an interrupted command has moved to {target} now")
    return True


def copy_run(source: Path, target: Path, *, on_bytes: Progress = lambda _count: None, disk: Disk | None = None) -> None:
    """Copy a run with all its parts, and compare the copy with what was read; it appears when all of it is forced.

    Holes stay holes. Raises as `move_run`, CorruptDataset if the copy is different.
    """
    source, target = placed(source), placed(target)
    disk, stage = disk or LocalDisk(), _stage(target, "copying", source)
    _check_target(target)
    with _held(disk, stage):
        if not _is_verified(stage, source):
            run = RunFiles(source)
            check_free(run, target)
            check_rename(run, target.name)
            run.check_closed(source.parent, source.name)
            _clear(disk, stage)
            check_space(disk, run, target)
            known = fingerprint(source.parent, run.names)
            try:
                for name in run.names:
                    part = stage / renamed(name, source.name, target.name)
                    copy_part(disk, run.path.parent / name, part, run.path, on_bytes)
                run.check_closed(source.parent, source.name)
                if known != fingerprint(source.parent, run.names):
                    raise DatasetError(f"{source} was changed while it was copied; repeat the command")
                _settle(disk, stage, list(_settled_notes(stage, source, target)))
                replace_file(disk, str(stage / _CHECKED), known.encode())
            except AcqStreamError:
                with contextlib.suppress(AcqStreamError):  # the first error counts
                    _clear(disk, stage)
                raise
        _leave(disk, stage, target)


def _is_verified(stage: Path, source: Path) -> bool:
    """True if a killed command had copied and compared the run as it still is."""
    with contextlib.suppress(FileNotFoundError):
        known = (stage / _CHECKED).read_bytes().decode("ascii", "replace")
        return not os.path.lexists(source) or known == fingerprint(source.parent, RunFiles(source).names)
    return False


def _checked_copy(disk: Disk, run: Path, copy: Path) -> str:
    """Force a copy of a run to the disk, and return its fingerprint. Raises DatasetError if a file differs."""
    if not same_frames(run, copy):
        raise DatasetError(f"{copy} is no copy of {run}: a file is missing or different; nothing was removed")
    found = fingerprint(copy.parent, [copy.name])
    for folder, names in walk(str(copy)):
        for name in names:
            path = os.path.join(folder, name)
            try:
                descriptor = disk.open(path, create=False)
            except OSError as error:
                if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM, errno.EISDIR):
                    continue  # nothing of it waits to be written by us
                raise StorageError.wrap(error, path, "cannot force the copy to the disk") from error
            try:
                disk.fdatasync(descriptor)
            except OSError as error:
                raise StorageError.wrap(error, path, "cannot force the copy to the disk") from error
            finally:
                disk.close(descriptor)
    return found


def interrupted_in(folder: Path) -> list[Path]:
    """What killed commands have left in a folder: the same command finishes each. Raises OSError, StorageError."""
    stages = (path for path in folder.iterdir() if _STAGE.fullmatch(path.name) and path.is_dir())
    return sorted(path for path in stages if not is_held(path / LOCK_NAME))


def _is_copied(source: Path, target: Path, on_bytes: Progress) -> bool:
    """True if a killed command had copied all that is left of a run, and had only to remove it."""
    for name in RunFiles(source).names if target.exists() else ():
        copy = target.parent / renamed(name, source.name, target.name)
        if not copy.exists() or not (name.endswith(VIEW_SUFFIX) or same_frames(source.parent / name, copy, on_bytes)):
            return False
    return target.exists()


@contextlib.contextmanager
def _held(disk: Disk, stage: Path) -> Iterator[None]:
    """The stage, made if need be, for this command alone; it goes once nothing of a run is in it."""
    refuse_link(str(stage))
    make_folder(disk, str(stage))
    try:
        lock = DirectoryLock(str(stage))
    except DatasetLocked as error:
        raise DatasetLocked(f"{stage}: another command is moving, copying or removing this run") from error
    except StorageError:
        _drop(disk, stage)
        raise
    try:
        with contextlib.closing(lock):
            yield
    except Exception:
        _drop(disk, stage)
        raise
    _drop(disk, stage)


def _drop(disk: Disk, stage: Path) -> None:
    """Remove a stage without a part of a run."""
    if not _parts_in(stage):
        remove_tree(disk, str(stage))


def _parts_in(stage: Path) -> list[str]:
    """Names of parts of a run: none begins with a dot, as `_CHECKED` does."""
    return sorted(name for name in os.listdir(stage) if name != LOCK_NAME and not name.startswith("."))


def _enter(disk: Disk, run: RunFiles, stage: Path, name: str, *, is_forced: bool = False) -> None:
    """Rename all parts into the stage, the dataset last; back if one cannot be moved, or was opened meanwhile."""
    try:
        for part in run.names:
            path = run.path.parent / part
            disk.replace(str(path), str(stage / renamed(part, run.path.name, name)))
        run.check_closed(stage, name, is_forced=is_forced)  # no other program finds it now: what is open was before
        disk.sync_directory(str(stage))
        disk.sync_directory(str(run.path.parent))
    except (OSError, DatasetLocked) as error:
        _put_back(disk, stage, run.path, name)
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise StorageError.wrap(error, str(path), "cannot move") from error
        raise


def _mark(disk: Disk, stage: Path, run: Path, name: str) -> None:
    """Note that a command is sure, or put the run back, as on a full disk. Raises StorageError."""
    try:
        replace_file(disk, str(stage / _CHECKED), b"")
    except StorageError as error:
        _undo(disk, stage, run, name, error)


def _undo(disk: Disk, stage: Path, run: Path, name: str, error: Exception) -> NoReturn:
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(str(stage / _CHECKED))
    _put_back(disk, stage, run, name)
    text = "all of the run is where it was"
    if not isinstance(error, OSError):
        raise DatasetError(f"{run}: {text}: {error}") from error
    raise StorageError.wrap(error, str(run), text) from error


def _put_back(disk: Disk, stage: Path, run: Path, name: str) -> None:
    """Undo `_enter`, also of a killed command: the parts of `run`, called `name` in the stage; the dataset comes last.

    Raises DatasetExists if another run has its name now, StorageError.
    """
    for part in sorted(_parts_in(stage), key=lambda part: part == name):
        path = run.parent / renamed(part, name, run.name)
        if os.path.lexists(path):
            raise DatasetExists(f"{path} is newer than what an interrupted command has in {stage}: rename it, repeat")
        try:
            disk.replace(str(stage / part), str(path))
        except OSError as error:
            text = f"cannot move back from {stage}, where the rest of the run is"
            raise StorageError.wrap(error, str(path), text) from error


def _clear(disk: Disk, stage: Path) -> None:
    """Remove what a copy has in its stage."""
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(str(stage / _CHECKED))
    _empty(disk, stage, "")


def _empty(disk: Disk, stage: Path, last: str) -> None:
    """Remove all in a stage, the dataset last."""
    for name in sorted(_parts_in(stage), key=lambda name: name == last):
        if os.path.isdir(stage / name) and not is_link(str(stage / name)):
            remove_tree(disk, str(stage / name))
        else:
            disk.unlink(str(stage / name))


def _leave(disk: Disk, stage: Path, target: Path) -> None:
    """Rename all parts out of the stage, the dataset last."""
    if not ((stage / target.name).exists() or target.exists()):
        raise DatasetError(f"{stage} has no {target.name} any more; nothing was moved")
    parts = sorted(_parts_in(stage), key=lambda name: name == target.name)
    for name in parts:  # before one of them leaves
        if os.path.lexists(target.parent / name):
            raise DatasetExists(f"{target.parent / name} already exists; remove it, and repeat the command")
    try:
        for name in parts:
            disk.replace(str(stage / name), str(target.parent / name))
        disk.sync_directory(str(target.parent))
    except OSError as error:
        text = "cannot move all of the run out of a hidden folder, repeat the command"
        raise StorageError.wrap(error, str(stage), text) from error


def _settle(disk: Disk, stage: Path, notes: Iterable[tuple[Path, bytes]]) -> None:
    """Replace the notes in the stage by `_settled_notes`, all or, as on a full disk, none; again changes nothing."""
    settled = [(path, stage / f"{_SETTLED}{number}", content) for number, (path, content) in enumerate(notes)]
    for _, prepared, content in settled:
        replace_file(disk, str(prepared), content)
    try:
        for path, prepared, _ in settled:
            disk.replace(str(prepared), str(path))
            disk.sync_directory(str(path.parent))
    except OSError as error:
        raise StorageError.wrap(error, str(path), "cannot replace") from error


def _settled_notes(stage: Path, source: Path, target: Path) -> Iterator[tuple[Path, bytes]]:
    """Path and new content of each note that names the place."""
    dataset = stage / target.name
    if is_run(dataset):
        for key in read_records(dataset):
            record = read_record(dataset, key)  # as it is stored
            if record is None or record.path == ".":
                continue
            place = recorded_folder(source, key, record)
            is_part = place == source.absolute().with_name(f"{source.name}.{key}")
            path = f"../{target.name}.{key}" if is_part else str(place)
            if path != record.path:
                yield record_path(dataset, key), json.dumps(encode_record(replace(record, path=path))).encode()
    for name in os.listdir(stage):
        note = stage / name / _NOTE
        if name.endswith(VIEW_SUFFIX) and note.exists():
            container = str(target.absolute().parent / name.removesuffix(VIEW_SUFFIX))
            with contextlib.suppress(CorruptDataset):  # a damaged note stays as it is
                yield note, json.dumps({**read_json_object(note, is_ours=True), "container": container}).encode()
        if name.endswith(".xml") and source.name != target.name:
            text = read_small_file(stage / name)
            for suffix in ("", ".n5"):  # of a mirror alone, or of a dataset with it
                text = text.replace(f">{source.name}{suffix}<".encode(), f">{target.name}{suffix}<".encode(), 1)
            yield stage / name, text


def _stage(place: Path, verb: str, source: Path) -> Path:
    """The hidden folder for what is done to `source`, beside `place`."""
    digest = hashlib.sha256(os.fsencode(source.absolute())).hexdigest()[:12]
    return place.absolute().with_name(f".{place.name}.{verb}-{digest}")


def _check_target(target: Path) -> None:
    problem = name_problem(normal_name(target.name))
    if problem:
        raise ConfigError(f"a run cannot be called {target.name!r:.120}: {problem}")
    if not target.parent.is_dir():
        raise FileMissing(FileNotFoundError("no such folder"), str(target.parent), "move or copy a run into")


def _is_on_another_disk(source: Path, target: Path) -> bool:
    return source.exists() and os.stat(source).st_dev != os.stat(target.absolute().parent).st_dev
