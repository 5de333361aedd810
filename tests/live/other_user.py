"""Work as another user of this machine, in a forked process. Only root can do that."""

from __future__ import annotations

import os
import shutil
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import pytest

STRANGER, SERVICE = 40_001, 40_002  # user ids that no account has
only_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be somebody else")


def result_as(user: int, work: Callable[[], object]) -> str:
    """The text of what `work` returns as that user and group; of an exception, its type and message."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            text = str(work())
        except BaseException as error:  # noqa: BLE001 - passed on as text
            text = "".join(traceback.format_exception_only(error)).strip()
        os.write(writer, text.encode()[:4000])
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return text


@contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder that all users can reach, and where all may write, as in /tmp."""
    folder = Path(mkdtemp(dir="/tmp"))
    try:
        folder.chmod(0o1777)
        yield folder
    finally:
        shutil.rmtree(folder)
