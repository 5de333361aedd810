"""The views of one acquisition, from its opening to its end; they outlive it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from acqstream.daemon.shared_memory_server import ProducerMemory
from acqstream.daemon.view_job import ViewJob
from acqstream.daemon.view_process import ViewProcess
from acqstream.errors import AcqStreamError
from acqstream.log.memory_budget import Share
from acqstream.mirrors.registry import VIEWS, folder_of
from acqstream.model.mirror_result import MirrorResult
from acqstream.model.status import ViewStatus
from acqstream.storage.disk import Disk
from acqstream.views.checkpoint import mark_begun
from acqstream.views.result_record import record_result, remove_record

logger = logging.getLogger("acqstream.daemon")


class AcquisitionViews:
    """names: of the views that were asked for, settings: of the mirrors among them; without any, nothing is made and
    nothing costs anything. left_out: mirrors of the configuration that are not made of this acquisition, and why.

    table is for the log to fill, None where memory cannot be shared. Used by the loop; `texts` and `mark` by any
    thread.
    """

    def __init__(
        self,
        process: ViewProcess,
        names: Sequence[str],
        share: Share,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        left_out: Mapping[str, str] | None = None,
    ) -> None:
        self.table = process.make_table() if names else None
        self._process = process
        self._names = names
        self._settings = settings or {}
        self._left_out = left_out or {}
        self._share = share
        self._lent: ProducerMemory | None = None
        self._jobs: dict[str, ViewJob] = {}
        self._warned: set[str] = set()

    def mark(self, disk: Disk, folder: Path, dataset_id: str) -> None:
        """Before `begin`: let readers know that there will be levels, so that they wait for the first one.

        How views of an interrupted dataset had ended is no longer true, and which are left out is recorded. A disk that
        refuses this does not hold up the frames.
        """
        for name in self._names:
            if name in VIEWS and name not in self._settings and VIEWS[name].marks_first:
                try:
                    mark_begun(disk, folder, name, dataset_id)
                except AcqStreamError as error:  # the view says it again, and frames come first
                    logger.warning("view %s of %s: %s", name, folder, error)
        for name in (*self._names, *self._left_out):
            try:
                own_folder = folder_of(folder, name, self._settings.get(name))
                remove_record(disk, folder, own_folder)
                if name in self._left_out:
                    result = MirrorResult(name=name, state="left_out", reason=self._left_out[name])
                    record_result(disk, folder, own_folder, result)
            except AcqStreamError as error:
                logger.warning("mirror %s of %s: how it stands is not recorded: %s", name, folder, error)

    def begin(self, folder: str) -> None:
        """The dataset's files are there."""
        for name in self._names:
            self._jobs[name] = self._process.add(
                folder,
                name,
                settings=self._settings.get(name),
                table=self.table,
                start=self._share.offset,
                length=self._share.length,
                lent=self._lent,
            )

    def lend(self, memory: ProducerMemory | None) -> None:
        """Frames will come in this memory of the producer's, if any."""
        self._lent = memory
        for job in self._jobs.values():
            self._process.lend(job, memory)

    def end(self) -> None:
        """The log has ended. To be called before its share of the memory is given back."""
        if self.table is not None:
            self.table.end()
        self.lend(None)

    def status(self, stored: int) -> dict[str, ViewStatus]:
        """By name; stored: frames published."""
        return {name: job.status(stored) for name, job in self._jobs.items()}

    def take_warnings(self) -> list[str]:
        """What the views warn of, each once."""
        found = [(name, job.warning) for name, job in self._jobs.items() if job.warning and name not in self._warned]
        self._warned.update(name for name, _ in found)
        return [text for _, text in found]

    def texts(self, stored: int) -> dict[str, str]:
        """By name, how far each is: for the receipt."""
        left_out = {name: f"left out: {reason}" for name, reason in self._left_out.items()}
        return {**left_out, **{name: job.text(stored) for name, job in list(self._jobs.items())}}
