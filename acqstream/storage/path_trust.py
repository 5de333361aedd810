"""Users that could have put something at a path, judged by the folders above it.

A local socket is only as safe as its folders: in a folder of a stranger, or in one where all users may write, a
stranger can replace the socket and receive what is sent to it.
"""

from __future__ import annotations

import stat
from pathlib import Path

from acqstream.storage.platform.capabilities import ROOT_USER, effective_user_id

_MAX_LINKS = 40  # as Linux


def distrust(path: Path) -> str:
    """The reason why a stranger could control `path`, naming the file or folder; empty if no stranger can.

    Strangers are all users but root and the present one. A folder that is writable for its owner or group only vouches
    for its entries of any owner: root made /run/acqstream for the account of the service. In a folder where all
    users may write, which must have the sticky bit (/tmp), entries of root and of the present user count only. What
    does not exist yet is judged by the folders that do. Empty on systems without user ids (Windows).
    """
    user = effective_user_id()
    if user is None:
        return ""
    trusted = (ROOT_USER, user)
    folder, links = Path(path.anchor or Path.cwd().anchor), 0
    names = list(reversed((Path.cwd() / path).parts[1:]))
    try:
        while names:
            name = names.pop()
            if name == "..":
                folder = folder.parent
                continue
            entry, mode = folder / name, folder.stat().st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                return f"all users may write in {folder} (mode {stat.S_IMODE(mode):04o})"
            status = entry.lstat()
            if mode & stat.S_IWOTH and status.st_uid not in trusted:
                return f"{entry} belongs to user {status.st_uid}, in a folder where all users may write"
            if not stat.S_ISLNK(status.st_mode):
                folder = entry
                continue
            links += 1
            if links > _MAX_LINKS:
                return f"{entry} is one of more than {_MAX_LINKS} symbolic links"
            target = entry.readlink()
            names.extend(reversed(target.parts[1:] if target.is_absolute() else target.parts))
            folder = Path(target.anchor) if target.is_absolute() else folder
    except OSError:
        return ""  # missing or unreachable: connecting reports it
    return ""
