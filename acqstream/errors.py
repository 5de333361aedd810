"""Every exception of the package.

AcqStreamError                  also carries `code`, its name on the wire
├── ConfigError                 the configuration cannot work; nothing was started
├── ProtocolError               a message breaks the protocol (who sent it, which field)
│   └── FieldError              ... because of one field; also a ValueError: CorruptDataset where a file has it
├── DaemonUnavailable           no daemon answers, or it fell silent for longer than the patience
├── WriterBehind                the daemon accepted no frame within the patience
├── WaitTimeout                 also a TimeoutError: the awaited run or mirror did not end, or no frame came, in time
├── AcquisitionRefused          the daemon answered no to `open`, with its reason
├── AcquisitionFailed           a running acquisition ended with an error
│   └── FrameRefused            one frame was refused, whose number it names; the run goes on
├── CannotResume                internal: a view's checkpoint or files are unusable; the view is cleared and restarted
├── StorageError                also an OSError: a disk call failed (path, errno)
│   ├── DiskFull                ... for want of space or quota
│   │   └── DiskFullAtSync      internal: ... in a sync of a view, which goes back to its checkpoint
│   └── FileMissing             ... because a small file is missing; also a FileNotFoundError
└── DatasetError                while creating, opening or reading a dataset
    ├── DatasetExists           also a FileExistsError
    ├── DatasetLocked           another process writes here (its name is in the text)
    ├── UnknownFormat           no known format at this path
    ├── UnsupportedFeature      valid by its specification, not handled here
    ├── CorruptDataset          bytes break the specification (path, offset)
    └── FrameNotFound           also a LookupError
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

# A quota is a full disk to its user. Some platforms have no EDQUOT.
FULL_DISK_ERRNOS = frozenset({errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)})


class AcqStreamError(Exception):
    """Base of all errors of this package."""

    code: str = "internal"


class ConfigError(AcqStreamError):
    """The configuration or the request cannot work; nothing was created."""

    code = "bad_config"

    def __init__(self, text: str, *, code: str = "bad_config") -> None:
        super().__init__(text)
        self.code = code


class ProtocolError(AcqStreamError):
    """A message breaks the protocol."""

    code = "bad_header"

    def __init__(self, text: str, *, code: str = "bad_header") -> None:
        super().__init__(text)
        self.code = code


class FieldError(ProtocolError, ValueError):
    """A field of a decoded message or file is missing, of the wrong type, or out of range."""


class DaemonUnavailable(AcqStreamError):
    """No daemon answers at the endpoint, or it fell silent for longer than the patience."""

    code = "unavailable"


class WriterBehind(AcqStreamError):
    """The window stayed closed for longer than the patience; the text names the bound that was reached."""

    code = "behind"


class WaitTimeout(AcqStreamError, TimeoutError):
    """The awaited run or mirror did not end, or has no frame, within the given time. It continues."""

    code = "timeout"


class AcquisitionRefused(AcqStreamError):
    """The daemon refused to open the acquisition; nothing was created."""

    def __init__(self, text: str, *, code: str = "denied") -> None:
        super().__init__(text)
        self.code = code


class AcquisitionFailed(AcqStreamError):
    """A running acquisition ended with an error; the frames before it are stored."""

    def __init__(self, text: str, *, code: str = "internal", number: int | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.number = number


class FrameRefused(AcquisitionFailed):
    """One frame cannot be stored; `number` is its frame number. The run goes on.

    earlier: numbers of frames of earlier calls that the daemon has refused, `number` is the first of them. The call
    that raises this has done its work all the same: its own frame was taken. Empty if the call itself was refused.
    """

    number: int

    def __init__(self, text: str, *, code: str, number: int, earlier: tuple[int, ...] = ()) -> None:
        super().__init__(text, code=code, number=number)
        self.earlier = earlier  # numbers below that of the next frame

    def of_number(self, number: int) -> FrameRefused:
        """The same error for another frame."""
        text = f"frame {number}: {str(self).removeprefix(f'frame {self.number}: ')}"
        return self if number == self.number else FrameRefused(text, code=self.code, number=number)

    @property
    def reason(self) -> str:
        """For the list of missing frames."""
        return f"refused ({self.code}): {str(self).removeprefix(f'frame {self.number}: ')}"


class CannotResume(AcqStreamError):
    """A view cannot continue from its checkpoint: it restarts from frame 0. Internal: never sent to a client."""


class StorageError(AcqStreamError, OSError):
    """A disk call failed. `errno`, `filename` and `number` (first frame not stored) are set where known."""

    code = "io_error"
    number: int | None = None

    def __init__(self, error: OSError, path: str, action: str) -> None:
        OSError.__init__(self, error.errno, f"{action}: {error.strerror or error}", path)

    def __str__(self) -> str:
        text = str(self.strerror)  # it has the words for errno, and may have the path of an error in this one
        return text if not self.filename or str(self.filename) in text else f"{text}: {self.filename!r}"

    def __reduce__(self) -> tuple[object, ...]:
        parts = (type(self), self.errno, self.strerror, self.filename, self.number)
        return _storage_error, parts  # else it could not come back from another process

    @staticmethod
    def wrap(error: OSError, path: str, action: str) -> StorageError:
        """The fitting class for `error`: `DiskFull` for want of space or quota."""
        cls = DiskFull if error.errno in FULL_DISK_ERRNOS else StorageError
        return cls(error, path, action)


def _storage_error(kind: type[StorageError], code: int, text: str, path: str, number: int | None) -> StorageError:
    """An error that another process reported."""
    error = kind.__new__(kind)  # __init__ would put the action before the text once more
    OSError.__init__(error, code, text, path)
    error.number = number
    return error


@contextmanager
def wrapping(path: str, action: str, kind: type[StorageError] = StorageError) -> Iterator[None]:
    """Raise what `kind.wrap` makes of an OSError in the block."""
    try:
        yield
    except OSError as error:
        raise kind.wrap(error, path, action) from error


class DiskFull(StorageError):
    """No space or no quota left."""

    code = "disk_full"


class DiskFullAtSync(DiskFull):
    """A sync found no space: the bytes written since the last successful one may be lost. Internal, for views."""

    @staticmethod
    def wrap(error: OSError, path: str, action: str) -> StorageError:
        """The fitting class for `error` of a sync."""
        cls = DiskFullAtSync if error.errno in FULL_DISK_ERRNOS else StorageError
        return cls(error, path, action)


class FileMissing(StorageError, FileNotFoundError):
    """A small file of a dataset is missing."""


class DatasetError(AcqStreamError):
    """A dataset cannot be created, opened or read."""

    code = "dataset_error"


class DatasetExists(DatasetError, FileExistsError):
    """The name is taken."""

    code = "name_taken"


class DatasetLocked(DatasetError):
    """Another process holds the data directory; the text names it."""

    code = "locked"


class UnknownFormat(DatasetError):
    """No known format at this path."""


class UnsupportedFeature(DatasetError):
    """Valid by its specification, but not handled here."""


class CorruptDataset(DatasetError):
    """Bytes break the specification.

    `path` names the file and `offset` the first offending byte, where they are known.
    """

    def __init__(self, text: str, *, path: str = "", offset: int | None = None) -> None:
        # Codecs know neither file nor offset.
        place = f"{path}: " if path else ""
        where = f" (at byte {offset})" if offset is not None else ""
        super().__init__(f"{place}{text}{where}")
        self.path = path
        self.offset = offset


class FrameNotFound(DatasetError, LookupError):
    """No frame with these axes."""
