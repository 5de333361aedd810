"""Answers producers that ask for the state of the mirrors of their datasets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace

from acqstream.daemon.acquisition import ActiveAcquisition
from acqstream.daemon.data_directory import DataDirectory
from acqstream.daemon.view_process import ViewProcess
from acqstream.errors import CorruptDataset, ProtocolError
from acqstream.log.state_file import DatasetState, read_state
from acqstream.mirrors.mirror_results import mirror_results
from acqstream.model.view_spec import MirrorResult
from acqstream.protocol.replies import MirrorsReply
from acqstream.protocol.requests import Mirrors

MAX_REASON_CHARACTERS = 1000  # in a message, which has to hold all of them


def mirrors_of_running(acquisition: ActiveAcquisition, views: ViewProcess) -> MirrorsReply:
    """Return the mirrors of a running acquisition, as the view process reports them."""
    in_progress = _short(views.results(acquisition.log.folder).values())
    return MirrorsReply(acquisition.dataset_id, acquisition.session.state, in_progress)


def read_stored_mirrors(request: Mirrors, directory: DataDirectory) -> tuple[str, MirrorsReply]:
    """Read the mirrors that are recorded in a dataset's folder, and return the folder too. Reads the disk: in a thread.

    request.name: checked. Raises ProtocolError (unknown_ds) if the data directory has no such dataset.
    """
    folder = directory.find(request.name)
    state = _state_of(os.fspath(folder))
    if state is None or state.dataset_id != request.dataset_id:
        missing = f"dataset {request.dataset_id!r} is not in this data directory as {request.name!r:.120}"
        text = f"{missing}: its folder was renamed, moved or deleted"
        raise ProtocolError(text, code="unknown_ds")
    return os.fspath(folder), MirrorsReply(request.dataset_id, state.state, tuple(mirror_results(folder, state)))


def with_recent(stored: MirrorsReply, recent: Mapping[str, MirrorResult]) -> MirrorsReply:
    """Return stored results, replaced by the recent ones that the view process has reported since."""
    return replace(stored, mirrors=_short(_newer(one, recent) for one in stored.mirrors))


def _newer(stored: MirrorResult, recent: Mapping[str, MirrorResult]) -> MirrorResult:
    """Prefer what the daemon knows: the disk may have refused the record."""
    known = recent.get(stored.name)
    if known is None or known.state == stored.state or stored.complete:
        return stored
    return replace(known, path=stored.path)


def _short(mirrors: Iterable[MirrorResult]) -> tuple[MirrorResult, ...]:
    return tuple(replace(one, reason=one.reason[:MAX_REASON_CHARACTERS]) for one in mirrors)


def _state_of(folder: str) -> DatasetState | None:
    try:
        return read_state(folder)
    except (FileNotFoundError, NotADirectoryError, CorruptDataset):
        return None
