"""The data directory: its lock, the process of the daemon that holds it, its folders, and the names of datasets.

A daemon finds out if the process that a lock file names still runs. Mounts of one folder by FUSE, overlays and networks
share no lock: docs/decisions/066-one-writer-across-mounts.md.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import stat
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from acqstream.errors import AcqStreamError, AcquisitionRefused, ConfigError, DatasetExists, StorageError
from acqstream.formats.ndtiff.folders import VIEW_SUFFIX, has_documents, holds_runs, is_separate
from acqstream.log.journal import JOURNAL_NAME
from acqstream.log.state_file import STATE_NAME
from acqstream.model.daemon_note import DaemonNote
from acqstream.model.dataset_name import MAX_FOLDERS, name_key, name_problem, normal_name
from acqstream.storage import platform
from acqstream.storage.files.directory_lock import LOCK_NAME, DirectoryLock, LockHolder, holder_of, read_holder
from acqstream.storage.files.folder_tree import is_link
from acqstream.storage.platform.capabilities import max_path_characters, process_space

logger = logging.getLogger("acqstream.daemon")

# In the path of a stack file, which has the name twice, or of a chunk of a mirror. For example
# "/Full resolution/_NDTiffStack_1000.tif.part", ".ome.zarr/10/c/1000/1000/1000/1000/1000.new".
_MAX_OTHER_CHARACTERS = 64
_UNICODE = ("utf-8", "utf8")
MAX_BRANCHES = 10_000  # folders of users and days, which have folders in them


def check_name(name: str) -> None:
    """Raise AcquisitionRefused (bad_name) unless every system can create folders of this name, in composed form."""
    problem = name_problem(name)
    if not problem and not name.isascii() and sys.getfilesystemencoding().lower() not in _UNICODE:
        problem = f"file names here are in {sys.getfilesystemencoding()}; start the daemon in a UTF-8 locale"
    if not problem and any(part.lower().endswith(VIEW_SUFFIX) for part in name.split("/")[:-1]):
        problem = f"a folder whose name ends with {VIEW_SUFFIX!r} has notes on a mirror"
    if problem:
        raise AcquisitionRefused(
            f"dataset name {name!r:.120} is not allowed: {problem}. Expected letters of any script, digits, '.', '_', "
            "'-' and spaces inside, '/' between folders, and not the name of a Windows device",
            code="bad_name",
        )


class DataDirectory:
    """The folder of all datasets, locked against other daemons while open.

    Raises ConfigError if it is not a writable folder, DatasetLocked if another daemon uses it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        if not self.path.is_dir():
            raise ConfigError(f"data directory {self.path} does not exist; create it or name another one with --data")
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise ConfigError(f"data directory {self.path} is not writable by this user")
        if _is_not_unicode(str(self.path)):  # messages, receipts and state files could not have its path
            shown = os.fsencode(self.path).decode("utf-8", "backslashreplace")
            raise ConfigError(f"data directory {shown} has a name that is not UTF-8; use another one")
        self.is_predecessor_dead = False  # proved
        self._lock = DirectoryLock(str(self.path), own_process(), self._why_in_use)
        self._ended_holders: dict[str, LockHolder] = {}  # of folders below, as their lock files name them
        self._ended = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._heart.start()

    def _why_in_use(self, directory: str, holder: LockHolder) -> str:
        self.is_predecessor_dead = is_running(holder.process) is False
        return why_in_use(directory, holder)

    def _beat(self) -> None:
        """Keep the lock file there and up to date; in a thread of its own, which may wait for the disk."""
        logged = ""
        while not self._ended.wait(BEAT_S):
            try:
                self._lock.refresh()
            except AcqStreamError as error:
                if str(error) != logged:
                    logged = str(error)
                    logger.error("the directory of this daemon is not safe from another one: %s", error)  # noqa: TRY400

    def announce(self, note: DaemonNote) -> None:
        """Write into the lock file where this daemon listens, for programs that know the directory alone.

        Raises DatasetLocked if a daemon that started at the same moment has taken the directory.
        """
        try:
            self._lock.write_note(note.text())
        except (
            StorageError
        ) as error:  # the disk may be full: daemons that clients find by an endpoint start all the same
            logger.warning("programs cannot find this daemon by its data directory: %s", error)

    def close(self) -> None:
        self._ended.set()
        self._heart.join(BEAT_S)
        if not self._heart.is_alive():  # else the disk stalls, and the end of the process releases the lock
            self._lock.close()

    def folders(self) -> Iterator[Path]:
        """Yield the folders that may be datasets, without links: another daemon may write where they lead.

        Those in folders of users and days too, of at most MAX_BRANCHES, upper ones first, then those that changed last.
        """
        level, count = [str(self.path)], 0
        for depth in range(MAX_FOLDERS + 1):
            below: list[tuple[int, str]] = []
            for folder in level:
                names, entries = self._list(folder, is_top=not depth)
                if not entries:
                    continue
                if count > MAX_BRANCHES:
                    text = "%s has more than %d folders without a dataset: what is in further ones is not recovered"
                    logger.warning(text, self.path, MAX_BRANCHES)
                    return
                count += 1
                for entry in entries:
                    if not is_separate(folder, entry.name, names):
                        yield Path(entry.path)
                    elif not _has_documents(entry.path):
                        below.append((-_changed_ns(entry), entry.path))
                    else:  # a folder of a user too may have a file of such a name
                        yield Path(entry.path)
                        found = self._list(entry.path)[1]
                        yield from (Path(one.path) for one in found if _has_state(one.path))
            level = [path for _, path in sorted(below)]

    def _list(self, folder: str, *, is_top: bool = False) -> tuple[set[str], list[os.DirEntry[str]]]:
        """All names in a folder, and the folders in it, without links; none if it is another daemon's."""
        try:
            with os.scandir(folder) as found:
                entries = [*found]
        except OSError as error:
            if is_top:
                raise
            logger.warning("cannot look for datasets in %s: %s", folder, error)
            return set(), []
        names = {entry.name for entry in entries}
        if not is_top and LOCK_NAME in names and (owner := self._other_daemon(folder)):
            logger.warning("not searched: %s is the data directory of another daemon, %s", folder, owner)
            return set(), []
        folders = [one for one in entries if one.is_dir(follow_symlinks=False) and not is_link(one.path)]
        return names, sorted(folders, key=lambda one: one.name)

    def _other_daemon(self, folder: str) -> str:
        """The daemon whose data directory a folder below this one is; "" for none. As slow as why_in_use at first."""
        path = os.path.join(folder, LOCK_NAME)
        try:
            if holder := holder_of(folder):
                return holder.name
            last = read_holder(folder)
            if self._ended_holders.get(folder) == last:
                return ""
            if why_in_use(folder, last):
                return last.name
        except FileNotFoundError:
            return ""
        except (StorageError, OSError) as error:  # another user's; the file of a daemon that has ended is empty
            with contextlib.suppress(OSError):
                return "" if not os.lstat(path).st_size else f"or its lock file is damaged: {error}"
            return ""
        self._ended_holders[folder] = last
        return ""

    def name_of(self, folder: Path) -> str:
        """The name of the dataset in a folder below this one."""
        return folder.relative_to(self.path).as_posix()

    def find(self, name: str) -> Path:
        """Return the existing folder of this name in any form of Unicode, else the path of a new one.

        Raises AcquisitionRefused (bad_name) if a part of the name is a folder that can hold no dataset, unless it has
        this one already.
        """
        place, last, refusal = self._place_of(name)
        path = place / last
        if not (last.isascii() or path.exists() or not place.is_dir()):
            same = [entry for entry in os.listdir(place) if normal_name(entry) == last]
            path = place / same[0] if same else path  # a folder copied from macOS may have decomposed letters
        if refusal is not None and not os.path.isfile(path / STATE_NAME):
            raise refusal
        return path

    def choose(self, name: str, *, number_if_taken: bool, in_use: set[str]) -> Path:
        """Return the folder for a new dataset, which does not exist. Names differ by more than case and Unicode form.

        Folders in the name may be missing. Removes an empty folder of this name. A daemon that was killed before it
        created the first file leaves one, and its producer requests the name again. Raises AcquisitionRefused
        (bad_name) or DatasetExists.
        """
        check_name(name)
        place, last, refusal = self._place_of(name)
        if refusal is not None:
            raise refusal
        _check_length(place, last)
        above = name_key(self.name_of(place / "_")).split("/")[:-1]
        taken = set()
        for one in in_use:  # its folders may not be made yet
            key = name_key(one).split("/")
            if key == above[: len(key)]:
                raise _not_a_folder(self.path / one, "a dataset that is being recorded")
            depth = len(key)
            if depth <= len(above) and key[:-1] == above[: depth - 1] and above[depth - 1].startswith(f"{key[-1]}."):
                folder = self.path.joinpath(*place.relative_to(self.path).parts[:depth])
                if not folder.is_dir():
                    raise _not_a_folder(folder, f"named as a part of {one}, which is being recorded")
            if key[: len(above)] == above:
                taken.add(key[len(above)])
        if name_key(last) not in taken:
            with contextlib.suppress(OSError):  # it is missing, has content, or is not a folder
                _remove_empty(place / last)
        taken |= {name_key(entry) for entry in os.listdir(place)} if place.is_dir() else set()
        if name_key(last) not in taken:
            return place / last
        if not number_if_taken:
            raise DatasetExists(f'{place / last} already exists; use another name or on_exists="number"')
        numbered = f"{last}_{1 + max(_numbers_after(name_key(last), taken), default=0)}"
        check_name(numbered)
        return place / numbered

    def _place_of(self, name: str) -> tuple[Path, str, AcquisitionRefused | None]:
        """The folder for the dataset of a checked name, which may be missing, the last part, and why none can begin.

        An existing folder is taken if its name is equal but for case and form. Raises AcquisitionRefused (bad_name) for
        a folder that may lead elsewhere, or that is another daemon's.
        """
        *parts, last = name.split("/")
        place, refusal = self.path, None
        for number, part in enumerate(parts):
            try:
                names = set(os.listdir(place))
            except FileNotFoundError:  # so are those in it
                return place.joinpath(*parts[number:]), last, refusal
            except OSError as error:
                raise _not_a_folder(place, f"not readable ({error.strerror})") from error
            same = [part] if part in names else sorted(one for one in names if name_key(one) == name_key(part))
            place /= same[0] if same else part
            if same:
                self._check_folder(place)
                is_fit = holds_runs(place.parent, place.name, names)
                found = "a dataset, a part of one, or a container of another format"
            else:
                is_fit = is_separate(place.parent, part, names)
                found = "named as a part of a dataset"
            if not is_fit and refusal is None:
                refusal = _not_a_folder(place, found)
        return place, last, refusal

    def _check_folder(self, place: Path) -> None:
        """Raise AcquisitionRefused (bad_name) for a folder that may lead elsewhere, or that is another daemon's."""
        try:
            found = place.lstat()
            if is_link(str(place)):
                raise _not_a_folder(place, "a link")
            if not stat.S_ISDIR(found.st_mode):
                raise _not_a_folder(place, "a file")
            if found.st_dev != self.path.stat().st_dev:  # whose space nobody watches
                raise _not_a_folder(place, f"on another disk than {self.path}")
        except OSError as error:
            raise _not_a_folder(place, f"not readable ({error.strerror})") from error
        if owner := self._other_daemon(str(place)):
            raise _not_a_folder(place, f"the data directory of another daemon, {owner}")


def _has_documents(folder: str) -> bool:
    """True also for a folder that cannot be listed."""
    try:
        return has_documents(folder)
    except OSError:
        return True


def _has_state(folder: str) -> bool:
    return os.path.isfile(f"{folder}/{STATE_NAME}") or os.path.isfile(f"{folder}/{JOURNAL_NAME}")


def _changed_ns(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_mtime_ns
    except OSError:  # removed meanwhile
        return 0


def _not_a_folder(place: Path, found: str) -> AcquisitionRefused:
    return AcquisitionRefused(f"{place} is {found}; expected a folder for datasets: use another name", code="bad_name")


def _numbers_after(key: str, taken: Iterable[str]) -> Iterator[int]:
    """The numbers behind this name that are in use. A gap is the number of a deleted take, and stays free."""
    for name in taken:
        digits = name.removeprefix(f"{key}_").partition(".")[0]  # a mirror has the name of its take and a suffix
        if name.startswith(f"{key}_") and re.fullmatch("[1-9][0-9]{0,8}", digits):
            yield int(digits)


def _check_length(folder: Path, name: str) -> None:
    # A file that only our own calls see would be missing for recovery, `repair` and all other programs.
    length, limit = len(str(folder)) + 2 * len(name) + _MAX_OTHER_CHARACTERS, max_path_characters()
    if length > limit:
        raise AcquisitionRefused(
            f"paths in {folder / name} may have {length} characters, expected at most {limit}; use a shorter name, or "
            "set LongPathsEnabled (docs/windows.md)",
            code="bad_name",
        )


def _remove_empty(folder: Path) -> None:
    """Remove an empty folder, and no link: Windows would remove the link, whatever the folder behind it contains."""
    if os.path.samestat(folder.lstat(), folder.stat()):
        folder.rmdir()


def _is_not_unicode(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


BEAT_S = 1.0
WATCH_S = 5.0
"""The longest wait for the heartbeat of a daemon that is not proved dead: it runs on another machine, or ran before
this one was started again, or in another container."""
_LOOK_S = 0.2
_CLOCK_S = 2.0  # by which the start of one process may differ: the kernel counts the machine's start in seconds


def own_process() -> str:
    """Return one word each: the machine since its start, the processes that are seen, number and start of this one."""
    return f"{boot_id()} {process_space()} {os.getpid()} {_started_s(os.getpid()):.2f}"


def is_running(process: str) -> bool | None:
    """Return if the process of this identity runs; None if it cannot be seen from here, or the identity is not one."""
    here, there = own_process().split(), process.split()
    if len(there) != len(here) or there[:2] != here[:2]:
        return None
    if there == here:
        return False  # a former daemon of this process
    try:
        number, started_s = int(there[2]), float(there[3])
        is_dead = psutil.Process(number).status() == psutil.STATUS_ZOMBIE
        return not is_dead and abs(_started_s(number) - started_s) < _CLOCK_S  # else the number was given again
    except psutil.NoSuchProcess:
        return False
    except (ValueError, psutil.AccessDenied):
        return None


def why_in_use(directory: str, holder: LockHolder) -> str:
    """Return a sign of life of the daemon that the lock file of a directory names; empty without one.

    Waits up to WATCH_S if it cannot be seen from here.
    """
    is_seen = is_running(holder.process) if holder.process else False
    if is_seen is not None:
        return "its process is running" if is_seen else ""
    latest_s = time.monotonic() + WATCH_S
    while time.monotonic() < latest_s:
        time.sleep(_LOOK_S)
        if read_holder(directory) != holder:
            return "its heartbeat in the directory goes on"
    return ""


def _started_s(number: int) -> float:
    """Seconds from the start of the machine, because the clock may be set meanwhile. Raises psutil.NoSuchProcess."""
    boot_s = psutil.boot_time()  # first: older versions of psutil keep it, and add the same one
    return float(psutil.Process(number).create_time() - boot_s)


@functools.cache
def boot_id() -> str:
    """Return an id of this machine since its start; unique to this process if the system has none."""
    return platform.boot_id() or uuid.uuid4().hex
