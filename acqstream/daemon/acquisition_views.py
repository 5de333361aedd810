"""The views of one acquisition, from its opening to its end. The views themselves may continue after it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from acqstream.daemon.shared_memory_server import ProducerMemory
from acqstream.daemon.view_job import ViewJob
from acqstream.daemon.view_process import ViewProcess
from acqstream.errors import AcqStreamError
from acqstream.log.memory_budget import Share
from acqstream.mirrors.view_kinds import folder_of
from acqstream.model.status import ViewStatus
from acqstream.model.view_spec import MirrorResult, ViewSpec
from acqstream.storage.files.disk import Disk
from acqstream.views.checkpoint import mark_begun
from acqstream.views.result_record import record_result, remove_record

LeftOut = Sequence[tuple[ViewSpec, str]]
"""Views of the configuration that are not made of an acquisition, and why."""

logger = logging.getLogger("acqstream.daemon")


class AcquisitionViews:
    """specs: the views to make; without any, no table and no process is made.

    table is for the log to fill, None where memory cannot be shared. Used by the loop; `texts`, `mark` and `disk_need`
    by any thread.
    """

    def __init__(
        self,
        process: ViewProcess,
        specs: Sequence[ViewSpec],
        share: Share,
        *,
        left_out: LeftOut = (),
    ) -> None:
        self.table = process.make_table() if specs else None
        self._process = process
        self._specs = specs
        self._left_out = left_out
        self._share = share
        self._lent: ProducerMemory | None = None
        self._jobs: dict[str, ViewJob] = {}
        self._warned: set[tuple[str, str]] = set()  # name of a view, code

    def mark(self, disk: Disk, folder: Path, dataset_id: str) -> None:
        """Before `begin`: record that levels will be made, so that readers wait for the first one.

        The recorded ends of an interrupted dataset's views are removed, and those left out are recorded. Errors of the
        disk are logged: frames come first.
        """
        for spec in self._specs:
            if spec.is_pyramid:
                try:
                    mark_begun(disk, folder, spec.name, dataset_id)
                except AcqStreamError as error:  # the view reports it again
                    logger.warning("view %s of %s: %s", spec.name, folder, error)
        for spec in self._specs:
            self._record(disk, folder, spec, None)
        for spec, reason in self._left_out:
            self._record(disk, folder, spec, MirrorResult(name=spec.name, state="left_out", reason=reason))

    def _record(self, disk: Disk, folder: Path, spec: ViewSpec, result: MirrorResult | None) -> None:
        """Replace the record of a view; None: remove it."""
        try:
            own_folder = folder_of(folder, spec)
            remove_record(disk, folder, own_folder)
            if result is not None:
                record_result(disk, folder, own_folder, result)
        except AcqStreamError as error:
            logger.warning("cannot record the state of mirror %s of %s: %s", spec.name, folder, error)

    def begin(self, folder: str) -> None:
        """Have the views made: the dataset's files exist."""
        for spec in self._specs:
            self._jobs[spec.name] = self._process.add(
                folder,
                spec,
                table=self.table,
                start=self._share.offset,
                length=self._share.length,
                lent=self._lent,
            )

    def lend(self, memory: ProducerMemory | None) -> None:
        """Tell the views that frames will arrive in the producer's memory; None: that they no longer do."""
        self._lent = memory
        for job in self._jobs.values():
            self._process.lend(job, memory)

    def end(self) -> None:
        """The log has ended. Called before its share of the memory is returned."""
        if self.table is not None:
            self.table.end()
        self.lend(None)

    def status(self, stored: int) -> dict[str, ViewStatus]:
        """Return the status of each view, by name. stored: frames published."""
        return {name: job.status(stored) for name, job in self._jobs.items()}

    def disk_need(self, stored: int) -> tuple[float, float]:
        """Bytes of disk that all views need for each further frame, and for frames stored and not taken yet."""
        needs = [job.disk_need(stored) for job in list(self._jobs.values())]
        return sum(need for need, _ in needs), sum(backlog for _, backlog in needs)

    def take_warnings(self) -> list[tuple[str, str]]:
        """Return the warnings of the views as code and text, each code of a view once."""
        found = []
        for name, job in self._jobs.items():
            progress = job.progress
            restart = f"mirror {name!r} is made again when the run ends: {progress.restart_warning}"
            found_now = {
                "uncalibrated": progress.warning,
                "mirror_held": progress.space_warning,
                "mirror_restarts": progress.restart_warning and restart,
            }
            for code, text in found_now.items():
                if text and (name, code) not in self._warned:
                    self._warned.add((name, code))
                    found.append((code, text))
        return found

    def texts(self, stored: int) -> dict[str, str]:
        """Return the progress of each view for the receipt, by name."""
        left_out = {spec.name: f"left out: {reason}" for spec, reason in self._left_out}
        return {**left_out, **{name: job.text(stored) for name, job in list(self._jobs.items())}}
