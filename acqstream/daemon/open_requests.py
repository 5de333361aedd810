"""Opens new acquisitions and resumes interrupted ones, which keep settings of their first `open`.

Epochs number the connections to an acquisition, to distinguish a producer from the one that replaced it. A lost
connection raises the epoch by 1, in memory; a restarted producer raises it by TAKEOVER_EPOCHS. The state file has the
epoch of the last opening.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from acqstream.daemon.acquisition import AcquisitionViews, ActiveAcquisition, LeftOut, Peer
from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.data_directory import DataDirectory, check_name
from acqstream.daemon.resources import Resources
from acqstream.description.space import not_understood
from acqstream.errors import (
    AcquisitionRefused,
    ConfigError,
    CorruptDataset,
    DatasetError,
    FileMissing,
    ProtocolError,
    StorageError,
)
from acqstream.formats.ndtiff.folders import read_records, record_key
from acqstream.integrity.recover import is_in_order, recover
from acqstream.log.log import Log
from acqstream.log.memory import FIRST_BYTES
from acqstream.log.recent_frames import Followers
from acqstream.log.state_file import DatasetState, read_receipt, read_state
from acqstream.mirrors.mirror_plan import (
    Budget,
    check_request,
    check_view,
    folder_of,
    has_separate_tiles,
    mirror_format,
)
from acqstream.model.acquisition_spec import AcquisitionSpec
from acqstream.model.axes import TILE_AXES
from acqstream.model.receipt import Receipt
from acqstream.model.state import AcquisitionState
from acqstream.model.status import SpaceLevel
from acqstream.model.units import count_text
from acqstream.model.view_spec import ViewSpec, stored_views
from acqstream.protocol.requests import parse_views
from acqstream.protocol.session import Session

logger = logging.getLogger("acqstream.recovery")

TAKEOVER_EPOCHS = 1_000_000
"""More than the connections of a producer while one daemon runs, so a replaced producer never catches up."""


@dataclass(frozen=True, slots=True)
class OpenPlan:
    """What `start` opens: a new folder, or the dataset whose state `resume` is. Nothing of it exists in memory yet.

    warnings: the code and text of each.
    """

    folder: Path
    spec: AcquisitionSpec
    resume: DatasetState | None = None
    warnings: Sequence[tuple[str, str]] = ()
    left_out: LeftOut = ()


class OpenRequests:
    """Checks `open` requests and creates their acquisitions, each with its share of the memory.

    `prepare` reads the disk, in a thread; `start` does not and is for the loop. Between the two no other acquisition
    may be started: it could have the same folder.
    """

    def __init__(self, config: DaemonConfig, directory: DataDirectory, resources: Resources) -> None:
        self._config = config
        self._directory = directory
        self._resources = resources

    @property
    def max_acquisitions(self) -> int:
        return self._config.max_acquisitions

    def prepare(self, spec: AcquisitionSpec, in_use: Collection[str]) -> OpenPlan | Receipt:
        """Plan an acquisition, or resume an interrupted one: with `spec.resume`, or for an `open` that is repeated.

        in_use: names of all running acquisitions. Creates nothing, imports formats of mirrors. Returns the receipt if
        a producer returns to its own finished acquisition. Raises AcquisitionRefused, DatasetExists, StorageError, or
        ProtocolError (unknown_ds) if its acquisition is missing from this data directory.
        """
        stored = self._find(spec) if spec.resume or spec.epoch > 0 else None
        if stored is not None and stored[1].dataset_id == spec.dataset_id:
            receipt = read_receipt(str(stored[0])) if stored[1].state is not AcquisitionState.INTERRUPTED else None
            if receipt is not None:
                return receipt
        spec, left_out = self._with_mirrors(spec)
        why_no_views = self._resources.views.unavailable_reason
        if why_no_views and spec.views and not _is_default_pyramid(spec):
            raise AcquisitionRefused(f"this daemon makes no mirrors: {why_no_views}", code="unsupported")
        if len(in_use) >= self._config.max_acquisitions:
            text = f"{len(in_use)} acquisitions are open, and max_acquisitions is {self._config.max_acquisitions}"
            raise AcquisitionRefused(text, code="denied")
        if stored is not None:
            return _plan_resume(spec, stored[0], self._recovered(*stored, spec), left_out=left_out)
        if spec.resume and spec.epoch > 0:
            raise ProtocolError(f"acquisition {spec.dataset_id!r} is not in this data directory", code="unknown_ds")
        warnings = self._check_mirrors(spec)
        if spec.resume:
            text = f"resume=True found no dataset {spec.name!r} in {self._directory.path}: a new one starts at frame 0"
            warnings.append(("nothing_to_resume", text))
        folder = self._directory.choose(spec.name, number_if_taken=spec.number_if_taken, in_use=set(in_use))
        name = self._directory.name_of(folder)
        return OpenPlan(folder, replace(spec, name=name), warnings=warnings, left_out=left_out)

    def _recovered(self, folder: Path, state: DatasetState, spec: AcquisitionSpec) -> DatasetState:
        """Return the state of a dataset that no run here writes, put in order as after a crash if it is not.

        Raises CorruptDataset, StorageError.
        """
        is_failed = state.state is AcquisitionState.FAILED and spec.dataset_id != state.dataset_id
        is_untidy = state.state is AcquisitionState.INTERRUPTED and not is_in_order(folder, state)
        if not (is_failed or is_untidy or state.state.writing):  # writing: the end could not be noted on the disk
            return state
        report = recover(folder, self._resources.disk, is_resumed=is_failed or is_untidy)
        if report is not None:
            logger.warning("recovered %s", report)
        return read_state(str(folder))

    def start(self, peer: Peer, plan: OpenPlan) -> ActiveAcquisition:
        """Create the acquisition of a plan; its files are made by the log's thread. Raises AcquisitionRefused."""
        spec, left_out = plan.spec, plan.left_out
        if plan.resume is None:
            self._check_space(spec)
        with ExitStack() as undo:
            share = self._resources.budget.lend(spec.frame_bytes, is_followed=bool(spec.views))
            undo.callback(share.close)  # if no thread can be started, later acquisitions need the memory
            share.bring_in(share.length if spec.views or spec.frame_bytes is not None else FIRST_BYTES)
            why_no_views = self._resources.views.unavailable_reason
            possible = () if why_no_views else spec.views
            all_left_out = (*left_out, *((view, why_no_views) for view in spec.views if why_no_views))
            views = AcquisitionViews(self._resources.views, possible, share, left_out=all_left_out)
            log = Log(
                plan.folder,
                spec,
                memory=share.view,
                disk=self._resources.disk,
                on_change=self._resources.wake,
                resume=plan.resume,
                free_reserve=self._resources.space.ballast.release,
                followers=Followers(
                    views.table,
                    views.texts,
                    lambda dataset: views.mark(self._resources.disk, dataset, spec.dataset_id),
                ),
            )
            undo.pop_all()  # the log uses the memory from here on
        if spec.views and why_no_views:
            log.notes.warn("no_levels", f"lower resolution levels of the tiles are not made: {why_no_views}")
        if plan.resume is None and (odd := not_understood(spec.summary)):
            log.notes.warn("not_understood", odd)
        for code, text in plan.warnings:
            log.notes.warn(code, text)
        for view, why in left_out:
            log.notes.warn("mirror_left_out", f"mirror {view.name!r} of the daemon's configuration is not made: {why}")
        session = Session(grace_s=self._config.grace_s)
        is_resumed = plan.resume is not None
        name = self._directory.name_of(plan.folder)
        return ActiveAcquisition(session, log, share, views, peer, name, epoch=spec.epoch, is_resumed=is_resumed)

    def _with_mirrors(self, spec: AcquisitionSpec) -> tuple[AcquisitionSpec, LeftOut]:
        """Add the mirrors of the configuration to a request that names none. Also returns the mirrors left out.

        Raises AcquisitionRefused.
        """
        left_out: LeftOut = ()
        if spec.default_mirrors and all(view.is_pyramid for view in spec.views):
            configured = parse_views(self._config.mirrors)
            mirrors = tuple(view for view in configured if not view.is_pyramid)
            why = self._resources.views.unavailable_reason
            if why:
                left_out = tuple((view, why) for view in mirrors)
            else:
                # levels of tiles are made as the request says, whatever is configured
                spec = replace(spec, views=configured if spec.tiles is None else (*spec.views, *mirrors))
        for view in spec.views:
            try:
                check_view(view)
            except ConfigError as error:
                raise AcquisitionRefused(str(error), code="unsupported") from error
        return spec, left_out

    def _check_mirrors(self, spec: AcquisitionSpec) -> list[tuple[str, str]]:
        """Check the mirrors against the request and the max memory of one mirror; return warnings with their codes.

        Raises AcquisitionRefused for an impossible mirror of the request. One of the configuration gets a warning only:
        it fails later, and the frames are stored all the same.
        """
        warnings = []
        planned = {axis.name for axis in spec.axes if axis.size is not None}
        request, budget = spec.as_request(), Budget.of(self._config.mirror_memory_mb)
        for view in spec.views:
            try:
                check_request(view, request, budget)
            except (ConfigError, DatasetError) as error:
                code = error.code if error.code == "no_memory" else "unsupported"
                if not spec.default_mirrors:
                    raise AcquisitionRefused(f"mirror {view.name!r}: {error}", code=code) from error
                warnings.append(("no_mirror", f"mirror {view.name!r} will not be made: {error}"))
                continue
            is_stitched = view.is_mirror and spec.tiles is not None and not has_separate_tiles(view.mirror_settings)
            if is_stitched and not planned >= TILE_AXES and not mirror_format(view).grows_picture:
                text = f"mirror {view.name!r} is made when the run has ended: sizes of row and column are not declared"
                warnings.append(("mirror_waits", text))
        return warnings

    def _find(self, spec: AcquisitionSpec) -> tuple[Path, DatasetState] | None:
        """Return folder and state of a dataset: by id for a producer that returns, by name for a restarted one."""
        check_name(spec.name)
        named = self._directory.find(spec.name)
        state = state_of(named)
        if state is not None and state.dataset_id == spec.dataset_id:
            return named, state
        if spec.epoch == 0:
            if state is None and named.is_dir() and any(named.iterdir()):  # an empty one: see DataDirectory.choose
                text = f"{named} was not written by acqstream and cannot be resumed"
                raise AcquisitionRefused(text, code="name_taken")
            return (named, state) if state is not None else None
        for folder in self._directory.folders():  # its name may have a number
            state = None
            with suppress(StorageError):  # an unreadable folder of another dataset must not stop this producer
                state = state_of(folder)
            if state is not None and state.dataset_id == spec.dataset_id:
                return folder, state
        return None

    def _check_space(self, spec: AcquisitionSpec) -> None:
        free = self._resources.space.free_bytes
        if free is None:
            return  # creating the dataset will raise the error of the disk
        if self._resources.space.level is SpaceLevel.FULL:
            raise AcquisitionRefused(self._resources.space.text(), code="disk_full")
        needed = (spec.expect or 0) * (spec.frame_bytes or 0)
        if needed > free - self._resources.space.reserve_bytes:
            text = f"{count_text(spec.expect or 0, 'frame', 'need')} {needed} bytes, {self._resources.space.text()}"
            raise AcquisitionRefused(text, code="disk_full")


def _plan_resume(spec: AcquisitionSpec, folder: Path, state: DatasetState, *, left_out: LeftOut) -> OpenPlan:
    """Plan to resume a dataset. Raises AcquisitionRefused."""
    if not _is_resumable(state, spec):
        text = f"{folder} is {state.state.lower()} and cannot be resumed"
        raise AcquisitionRefused(text + (f": {state.reason}" if state.reason else ""), code="name_taken")
    epoch = _next_epoch(spec, state)
    tiles = state.tiles  # those of the first request decide whether levels are made
    gone = _removed_mirrors(spec, folder, state, left_out)
    kept_views = tuple(view for view in _stored_views(state) if view.name not in gone)
    views = {view.name: view for view in kept_views}  # these keep their first settings
    for view in spec.views:
        if view.name not in gone and (not view.is_pyramid or (tiles is not None and tiles.levels != 0)):
            views.setdefault(view.name, view)
    all_views = tuple(views.values())
    request = {**state.request, "epoch": epoch, **stored_views(all_views)}
    state = replace(state, state=AcquisitionState.INTERRUPTED, request=request)
    summary = state.request.get("summary")
    stored = replace(
        spec,
        epoch=epoch,
        views=all_views,
        dataset_id=state.dataset_id,
        name=state.name,
        summary=summary if isinstance(summary, dict) else {},
        replace_duplicates=bool(state.request.get("replace_duplicates")),
        tiles=tiles,
    )
    left_out = tuple((view, why) for view, why in left_out if view.name not in views and view.name not in gone)
    kept = kept_settings(spec, state.request, kept_views) if epoch - spec.epoch >= TAKEOVER_EPOCHS else ""
    removed = f"mirror {', '.join(gone)} was removed and is not made again; name it in `mirrors=` to make it"
    warnings = [("resume_keeps", kept)] * bool(kept) + [("mirror_removed", removed)] * bool(gone)
    return OpenPlan(folder, stored, state, warnings, left_out)


def _removed_mirrors(spec: AcquisitionSpec, folder: Path, state: DatasetState, left_out: LeftOut) -> list[str]:
    """Return the mirrors that stay removed: all that were, but those that another `create` asks for by name now."""
    is_new = spec.dataset_id != state.dataset_id and not spec.default_mirrors
    asked = {view.name for view in spec.views} if is_new else set()
    removed = {key for key, one in read_records(folder).items() if one.state == "removed"}
    views = {view.name: view for view in (*spec.views, *(view for view, _ in left_out), *_stored_views(state))}
    return [name for name, view in views.items() if name not in asked and _key_of(folder, view) in removed]


def _key_of(folder: Path, view: ViewSpec) -> str:
    """The key of a view's record; "" for a view that cannot be made."""
    try:
        return record_key(folder, folder_of(folder, view))
    except ConfigError:
        return ""


def _is_default_pyramid(spec: AcquisitionSpec) -> bool:
    """Return True if the only view is the default pyramid of tiles: it can be made later."""
    is_pyramid = len(spec.views) == 1 and spec.views[0].is_pyramid
    return is_pyramid and spec.tiles is not None and spec.tiles.levels is None


def _stored_views(state: DatasetState) -> tuple[ViewSpec, ...]:
    """Return the views of an interrupted dataset. Raises AcquisitionRefused if its request is damaged."""
    try:
        return state.views
    except ValueError as error:
        raise AcquisitionRefused(f"acqstream.json of {state.name} is damaged: {error}") from error


def _is_resumable(state: DatasetState, spec: AcquisitionSpec) -> bool:
    """Return True for an interrupted dataset, as a failed one is now; for another producer also after an error."""
    is_other = spec.dataset_id != state.dataset_id
    return state.state is AcquisitionState.INTERRUPTED or (is_other and state.state is AcquisitionState.ERRORED)


def _next_epoch(spec: AcquisitionSpec, state: DatasetState) -> int:
    """Return the epoch to resume with. Raises AcquisitionRefused (denied) if another producer took the dataset over."""
    last = state.request.get("epoch")
    last = last if isinstance(last, int) else 0
    if spec.dataset_id != state.dataset_id:
        return last + TAKEOVER_EPOCHS
    if 0 < spec.epoch < last:
        raise AcquisitionRefused(f"{state.name} was resumed by another producer", code="denied")
    return max(spec.epoch, last)


def state_of(folder: Path) -> DatasetState | None:
    """Return the state of a dataset; None for any other folder."""
    try:
        return read_state(str(folder))
    except (FileMissing, CorruptDataset):
        return None


_MAX_NAMED = 8
_MAX_CHARACTERS = 60
_OF_A_START = frozenset({"StartTime", "datetime", "uid"})  # of the summary: they differ at each start
_MISSING = object()


def kept_settings(
    spec: AcquisitionSpec, first: Mapping[str, Any], views: Sequence[ViewSpec], *, is_running: bool = False
) -> str:
    """The text of a warning that names what `spec` asks for and does not get; empty if it gets everything.

    first is the request of acqstream.json, views are its views. is_running: the log of the first one goes on.
    """
    summary = list(kept_entries(spec.summary, first.get("summary")))
    texts = [*kept_summary(summary)]
    settings = _plain(spec.as_request())
    names = {"axes": "axes", "tiles": "tiles", "duplicates": "replace_duplicates"}
    if is_running:
        names |= {"durability": "durability", "expect": "expect"}
    for key, name in names.items():
        kept, asked = _plain(first.get(name)), settings[name]
        if key in spec.given and kept != asked:
            if key == "duplicates":
                kept, asked = ("replace" if one else "error" for one in (kept, asked))
            texts.append(_of_one(key, kept, asked))
    asked_views = {view.name: view for view in spec.views}
    for view in views:
        asked_view = asked_views.get(view.name)
        if asked_view is not None and asked_view.mirror_settings != view.mirror_settings:
            texts.append(_of_one(f"mirror {view.name}", view.mirror_settings, asked_view.mirror_settings))
        elif asked_view is None and view.is_mirror and not spec.default_mirrors:
            texts.append(f"mirror {view.name}, which is not asked for")
    return f"resume keeps the first {'; '.join(texts)}" if texts else ""


def kept_entries(asked: Mapping[str, Any], kept: Any) -> Iterator[str]:
    """A text for each entry of a summary that is asked for and differs from what is kept."""
    kept = kept if isinstance(kept, Mapping) else {}
    for key, value in asked.items():
        if key not in _OF_A_START and _without_start(kept.get(key, _MISSING)) != _without_start(value):
            yield _of_one(key, kept.get(key, _MISSING), value)


def kept_summary(entries: Iterable[str]) -> Iterator[str]:
    """One text of the first entries, and how many others there are; none without entries."""
    texts = list(entries)
    if texts:
        more = f"; and {len(texts) - _MAX_NAMED} more entries" if len(texts) > _MAX_NAMED else ""
        yield f"summary: {'; '.join(texts[:_MAX_NAMED])}{more}"


def new_mirrors(spec: AcquisitionSpec, views: Sequence[ViewSpec]) -> bool:
    """True if `spec` itself asks for mirrors that are not among the views of a run."""
    known = {view.name for view in views}
    return not spec.default_mirrors and any(view.is_mirror and view.name not in known for view in spec.views)


def _of_one(key: str, kept: object, asked: object) -> str:
    return f"{key} {_shown(kept)}, not {_shown(asked)}"


def _shown(value: object) -> str:
    if value is _MISSING or value is None:
        return "none"
    text = repr(value)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}..."


def _without_start(value: Any) -> Any:
    return {key: one for key, one in value.items() if key not in _OF_A_START} if isinstance(value, Mapping) else value


def _plain(value: Any) -> Any:
    """As JSON gives it back."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
