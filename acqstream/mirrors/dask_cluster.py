"""A Dask cluster that runs tasks of a mirror."""

from __future__ import annotations

from concurrent.futures import Executor
from importlib import import_module
from typing import Any

from acqstream.errors import ConfigError, DatasetError
from acqstream.extras import install_command

TIMEOUT_S = 10


class DaskCluster:
    """The workers of a scheduler. Dask gives the tasks of a lost worker to others."""

    def __init__(self, scheduler: str) -> None:
        """Raises ConfigError without Dask, DatasetError if no scheduler answers."""
        try:
            distributed: Any = import_module("distributed")
        except ImportError as error:
            raise ConfigError(f"a Dask cluster needs Dask ({error}): {install_command('dask')}") from error
        try:
            self._client: Any = distributed.Client(scheduler, timeout=TIMEOUT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise DatasetError(f"no Dask scheduler answers at {scheduler}: {error}") from error
        self.executor: Executor = self._client.get_executor(pure=False)

    @property
    def width(self) -> int:
        """Number of tasks that can run at once now."""
        threads: dict[str, int] = self._client.nthreads()
        return max(1, sum(threads.values()))

    def close(self) -> None:
        """Drop the tasks that have not started."""
        self.executor.shutdown(wait=False)
        self._client.close()
