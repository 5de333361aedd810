"""A data directory whose daemons are started by `create(data=...)`, for tests: none outlives the test."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from acqstream.client.daemon_requests import shut_down
from acqstream.client.directory_daemon import CONFIG_VARIABLE, LOG_NAME, endpoint_of
from acqstream.errors import AcqStreamError
from acqstream.storage.files.directory_lock import holder_of
from tests.waiting import until

DEADLINE_S = 100.0  # of a free machine, for programs that start an interpreter or several


class EmbeddedDaemons:
    """The directory `data` and the daemons that hold it, one after the other."""

    def __init__(self, home: Path, **options: object) -> None:
        self.data = home / "data"
        self.data.mkdir()
        self.config = home / "embedded.toml"
        settings = {"memory_mb": 64, "runtime": str(home / "run"), "low_space_minutes": 0.0, **options}
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        self.config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.environment = {**os.environ, CONFIG_VARIABLE: str(self.config)}

    @property
    def log(self) -> str:
        return (self.data / LOG_NAME).read_text(encoding="utf-8")

    @property
    def pid(self) -> int | None:
        """The process that holds the directory. One that takes or leaves it has no name there for a moment."""

        def holder() -> list[int]:
            process = holder_of(str(self.data))
            return [0] if process is None else [int(pid) for pid in re.findall(r" pid (\d+) on ", process.name)]

        return until(holder, "the lock file names its process", DEADLINE_S)[0] or None

    def program(self, text: str, *arguments: str) -> subprocess.Popen[str]:
        """A script in a process and a session of its own; its argument 1 is the data directory."""
        return subprocess.Popen(
            [sys.executable, "-c", text, str(self.data), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            start_new_session=True,
        )

    def run(self, text: str, *arguments: str) -> str:
        """Run a script to its end, which must be in order; what it printed."""
        with self.program(text, *arguments) as process:
            out, err = process.communicate()
        assert process.returncode == 0, err
        return out

    def wait_until_free(self) -> None:
        until(lambda: holder_of(str(self.data)) is None, f"no daemon has {self.data}", DEADLINE_S)

    def end(self) -> None:
        """Shut the daemon down if there is one, and wait until it is gone."""
        while (pid := self.pid) is not None:
            with contextlib.suppress(AcqStreamError):
                shut_down(endpoint_of(self.data))
            until(partial(has_ended, pid), "the daemon ends", DEADLINE_S)


def has_ended(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@contextmanager
def embedded_daemons(home: Path, **options: object) -> Iterator[EmbeddedDaemons]:
    """The directory; for programs of this process too, the environment names its configuration."""
    daemons = EmbeddedDaemons(home, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CONFIG_VARIABLE, str(daemons.config))
        try:
            yield daemons
        finally:
            daemons.end()
