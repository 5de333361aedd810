"""Answers producers that ask how the mirrors of their datasets stand. Used by the loop only."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace

from acqstream.daemon.acquisition_registry import AcquisitionRegistry
from acqstream.daemon.data_directory import DataDirectory, check_name
from acqstream.daemon.view_process import ViewProcess
from acqstream.errors import CorruptDataset, ProtocolError
from acqstream.log.state_file import DatasetState, read_state
from acqstream.mirrors.mirror_results import mirror_results
from acqstream.model.mirror_result import MirrorResult
from acqstream.protocol.replies import MirrorsReply
from acqstream.protocol.requests import Mirrors

MAX_REASON_CHARACTERS = 1000  # in a message, which has to hold all of them


def mirrors_reply(
    request: Mirrors, registry: AcquisitionRegistry, directory: DataDirectory, views: ViewProcess
) -> MirrorsReply:
    """How they stand: of a running acquisition as the daemon knows it, else as its folder and the daemon have it.

    Raises AcquisitionRefused (bad_name), ProtocolError (unknown_ds) if the data directory has no such dataset.
    """
    acquisition = registry.by_id(request.dataset_id)
    if acquisition is not None:
        in_progress = _short(views.results(acquisition.log.folder).values())
        return MirrorsReply(request.dataset_id, acquisition.session.state, in_progress)
    check_name(request.name)
    folder = directory.find(request.name)
    state = _state_of(os.fspath(folder))
    if state is None or state.dataset_id != request.dataset_id:
        text = f"dataset {request.dataset_id!r} is not in this data directory as {request.name!r:.120}"
        raise ProtocolError(text, code="unknown_ds")
    recent = views.results(os.fspath(folder))
    mirrors = _short(_newer(one, recent) for one in mirror_results(folder, state))
    return MirrorsReply(request.dataset_id, state.state, mirrors)


def _newer(stored: MirrorResult, recent: Mapping[str, MirrorResult]) -> MirrorResult:
    """What the daemon knows goes before what the disk has: that may have refused the record."""
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
