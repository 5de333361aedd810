"""What an `open` gets: something new, an interrupted dataset, a receipt, or no."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acqstream.daemon.acquisition import ActiveAcquisition, Peer
from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.data_directory import DataDirectory
from acqstream.daemon.open_requests import TAKEOVER_EPOCHS, OpenPlan, OpenRequests
from acqstream.daemon.resources import Resources
from acqstream.daemon.view_process import ViewProcess
from acqstream.errors import AcqStreamError, AcquisitionRefused, DatasetExists, ProtocolError
from acqstream.formats.ndtiff.folders import read_records
from acqstream.log.state_file import RECEIPT_NAME, read_receipt
from acqstream.model.acquisition_spec import AcquisitionSpec, AxisSpec, FrameHint, TileSpec
from acqstream.model.receipt import Receipt, Status
from acqstream.model.view_spec import MirrorResult, ViewSpec, requested_views, stored_views
from acqstream.protocol.encoding import Encoding
from acqstream.storage.files.disk import LocalDisk
from acqstream.views.view_folder import record_result
from tests.live.stored import unstalled
from tests.log.make_frames import frames_of

PEER = Peer(b"peer", Encoding.JSON)
OWN, OTHER = "own-dataset", "other-dataset"


class Desk:
    """OpenRequests in a data directory; what was opened is ended again by `end` or at the end of the test."""

    def __init__(self, data: Path, **options: Any) -> None:
        self.data = data
        data.mkdir()
        self._directory = DataDirectory(data)
        config = DaemonConfig(data=data, reserve_mb=1, ballast_mb=0, memory_mb=16, **options)
        resources = Resources(config, LocalDisk(), lambda: None)
        resources.space.measure()
        self.budget = resources.budget
        self._openings = OpenRequests(config, self._directory, resources)
        self.running: list[ActiveAcquisition] = []

    def open(self, name: str = "cells", ds: str = OWN, **more: Any) -> ActiveAcquisition:
        opened = self.answer(name, ds, **more)
        assert isinstance(opened, ActiveAcquisition)
        opened.log.wait_until_open()
        return opened

    def answer(self, name: str = "cells", ds: str = OWN, **more: Any) -> ActiveAcquisition | Receipt:
        plan = self._openings.prepare(
            AcquisitionSpec(dataset_id=ds, name=name, **more), {one.name for one in self.running}
        )
        if isinstance(plan, Receipt):
            return plan
        opened = self._openings.start(PEER, plan)
        self.running.append(opened)
        return opened

    def plan(self, **more: Any) -> OpenPlan:
        return self.prepared(AcquisitionSpec(dataset_id=OWN, name="cells", **more))

    def prepared(self, spec: AcquisitionSpec) -> OpenPlan:
        plan = self._openings.prepare(spec, set())
        assert isinstance(plan, OpenPlan)
        return plan

    def refusal(self, *arguments: Any, **more: Any) -> tuple[str, str]:
        """Code and text of the error."""
        with pytest.raises((AcquisitionRefused, DatasetExists, ProtocolError)) as caught:
            self.answer(*arguments, **more)
        error = caught.value
        assert isinstance(error, AcqStreamError)
        return error.code, str(error)

    def end(self, status: Status = "interrupted") -> None:
        for one in self.running:
            one.log.close(status)
            one.share.close()
        self.running.clear()

    def close(self) -> None:
        self.end()
        self._directory.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    one = Desk(tmp_path / "data", max_acquisitions=2)
    yield one
    one.close()


def interrupted(desk: Desk, count: int = 3, **more: Any) -> None:
    """A dataset with so many frames, interrupted."""
    log = desk.open(**more).log
    for frame in frames_of(count):
        log.append(frame.header, frame.image)
    desk.end()


def test_a_producer_that_comes_back_gets_its_dataset(desk: Desk) -> None:
    interrupted(desk, summary={"Interval_ms": 5})
    one = desk.open(resume=True, epoch=1)
    assert (one.dataset_id, one.epoch, one.is_resumed, one.log.received) == (OWN, 1, True, 3)
    assert one.log.spec.summary["Interval_ms"] == 5


def test_it_is_found_also_where_its_name_got_a_number(desk: Desk) -> None:
    (desk.data / "cells" / "notes").mkdir(parents=True)
    interrupted(desk, number_if_taken=True)
    one = desk.open("cells", resume=True, epoch=4)
    assert (one.name, one.epoch, one.log.received) == ("cells_1", 4, 3)


@pytest.mark.parametrize("end", ["interrupted", "completed"])
def test_an_open_that_is_repeated_gets_its_own_acquisition(desk: Desk, end: Status) -> None:
    """Also where its name got a number: the daemon before this one opened it, and its answer was lost."""
    (desk.data / "cells" / "notes").mkdir(parents=True)
    first = desk.open(number_if_taken=True).log
    desk.end(end)
    one = desk.answer(number_if_taken=True, epoch=1)
    if end == "completed":
        assert one == first.receipt
    else:
        assert isinstance(one, ActiveAcquisition)
        assert (one.name, one.dataset_id, one.epoch, one.log.received) == ("cells_1", OWN, 1, 0)
    assert not (desk.data / "cells_2").exists()


def test_an_open_that_is_repeated_is_the_first_one_to_arrive(desk: Desk) -> None:
    one = desk.open(epoch=2)
    assert (one.name, one.epoch, one.is_resumed) == ("cells", 2, False)
    assert desk.refusal("cells", OTHER, epoch=1)[0] == "name_taken"


def test_a_producer_that_was_started_again_gets_the_dataset_of_that_name(desk: Desk) -> None:
    interrupted(desk)
    one = desk.open("cells", OTHER, resume=True, summary={"another": 1})
    assert (one.dataset_id, one.log.received, one.is_resumed) == (OWN, 3, True)
    assert "another" not in one.log.spec.summary


def test_a_name_that_is_free_begins_a_dataset(desk: Desk) -> None:
    one = desk.open(resume=True)
    assert (one.dataset_id, one.log.received, one.is_resumed) == (OWN, 0, False)


def test_what_is_not_here_cannot_be_come_back_to(desk: Desk) -> None:
    interrupted(desk)
    assert desk.refusal("cells", OTHER, resume=True, epoch=1)[0] == "unknown_ds"
    assert desk.refusal("absent", OTHER, resume=True, epoch=1)[0] == "unknown_ds"
    assert desk.refusal("../cells", OWN, resume=True, epoch=1)[0] == "bad_name"
    assert sorted(path.name for path in desk.data.iterdir() if path.is_dir()) == ["cells"]


def test_without_resume_the_name_is_taken(desk: Desk) -> None:
    interrupted(desk)
    assert desk.refusal("cells", OTHER)[0] == "name_taken"


@pytest.mark.parametrize("status", ["completed", "canceled", "error"])
def test_a_finished_dataset_answers_its_producer_with_the_receipt(desk: Desk, status: Status) -> None:
    receipt = desk.open().log
    desk.end(status)
    assert desk.answer(resume=True, epoch=1) == receipt.receipt
    assert desk.refusal(resume=False)[0] == "name_taken"
    if status != "error":
        code, text = desk.refusal("cells", OTHER, resume=True)
        assert code == "name_taken"
        assert "cannot be resumed" in text


def test_a_dataset_that_ended_with_an_error_is_resumed_by_another_producer(desk: Desk) -> None:
    log = desk.open().log
    frames = frames_of(4)
    for frame in frames[:3]:
        log.append(frame.header, frame.image)
    desk.end("error")
    assert json.loads((desk.data / "cells" / "acqstream.json").read_bytes())["state"] == "ERRORED"
    one = desk.open("cells", OTHER, resume=True)
    assert (one.dataset_id, one.log.received, one.log.received_frames, one.is_resumed) == (OWN, 3, 3, True)
    assert not (desk.data / "cells" / RECEIPT_NAME).exists()
    one.log.append(frames[3].header, frames[3].image)
    desk.end("completed")
    assert one.log.receipt is not None
    assert (one.log.receipt.status, one.log.receipt.stored) == ("completed", 4)


def test_a_finished_dataset_without_a_receipt_is_refused(desk: Desk) -> None:
    desk.open()
    desk.end("completed")
    (desk.data / "cells" / RECEIPT_NAME).unlink()
    assert desk.refusal(resume=True, epoch=1)[0] == "name_taken"


def test_a_folder_of_somebody_else_is_left_alone(desk: Desk) -> None:
    (desk.data / "cells" / "notes").mkdir(parents=True)
    code, text = desk.refusal(resume=True)
    assert code == "name_taken"
    assert "was not written by acqstream" in text


def test_an_empty_folder_does_not_hinder_a_producer_that_asks_again(desk: Desk) -> None:
    """That of a daemon which was killed right after it had made it."""
    (desk.data / "cells").mkdir()
    assert not desk.open(resume=True).is_resumed


def test_a_takeover_fences_the_producer_before_for_good(desk: Desk) -> None:
    interrupted(desk)
    assert desk.open(resume=True, epoch=7).epoch == 7
    desk.end()
    assert desk.open("cells", OTHER, resume=True).epoch == 7 + TAKEOVER_EPOCHS
    desk.end()
    assert desk.refusal(resume=True, epoch=8) == ("denied", "cells was resumed by another producer")
    assert desk.open(resume=True, epoch=8 + TAKEOVER_EPOCHS).epoch == 8 + TAKEOVER_EPOCHS
    assert json.loads((desk.data / "cells" / "acqstream.json").read_bytes())["request"]["epoch"] == 8 + TAKEOVER_EPOCHS


def test_a_client_that_keeps_no_count_is_let_through(desk: Desk) -> None:
    interrupted(desk)
    desk.open("cells", OTHER, resume=True)
    desk.end()
    assert desk.open(resume=True).epoch == TAKEOVER_EPOCHS


def test_acquisitions_are_bounded(desk: Desk) -> None:
    interrupted(desk)
    desk.open("one", "dataset-one")
    desk.open("two", "dataset-two")
    assert desk.refusal(resume=True, epoch=1)[0] == "denied"


def test_going_on_keeps_tiles_and_levels_of_the_beginning(desk: Desk) -> None:
    begun = desk.open("tiled", tiles=TileSpec((4, 6), 0))
    desk.end()
    one = desk.open("tiled", OTHER, resume=True, tiles=TileSpec((1, 1)), views=(ViewSpec("pyramid"),))
    assert (one.log.spec.tiles, one.log.spec.views) == (TileSpec((4, 6), 0), ())
    assert one.log.folder == begun.log.folder
    desk.end()
    interrupted(desk)
    flat = desk.open("cells", OTHER, resume=True, tiles=TileSpec((1, 1)), views=(ViewSpec("pyramid"),))
    assert (flat.log.spec.tiles, flat.log.spec.views) == (None, ())


def test_where_no_views_can_be_made_tiles_are_stored_and_levels_that_were_asked_for_refused(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ViewProcess, "unavailable_reason", "no sockets")
    one = desk.open("tiled", tiles=TileSpec((4, 6)), views=(ViewSpec("pyramid"),))
    assert [code for code, _, _ in unstalled(one.log.notes.warnings)] == ["no_levels"]
    code, text = desk.refusal("more", OTHER, tiles=TileSpec((4, 6), 2), views=(ViewSpec("pyramid"),))
    assert (code, "no sockets" in text) == ("unsupported", True)
    assert desk.refusal("more", OTHER, views=(ViewSpec("null"),))[0] == "unsupported"
    assert unstalled(desk.open("flat", OTHER).log.notes.warnings) == []


LARGE: dict[str, Any] = {"frame": FrameHint("<u2", (768, 768)), "axes": (AxisSpec("time"), AxisSpec("z", 64))}


@pytest.mark.parametrize("mirror", ["n5", "wkw"])
def test_a_mirror_that_does_not_fit_into_memory_is_refused_with_the_numbers(tmp_path: Path, mirror: str) -> None:
    desk = Desk(tmp_path / "data", mirror_memory_mb=16)
    code, text = desk.refusal(**LARGE, views=(ViewSpec(mirror),), default_mirrors=False)
    needed = re.search(r"need at least ([0-9]+) MiB", text)
    assert code == "no_memory"
    assert text.startswith(f"mirror '{mirror}': chunks of ")
    assert needed is not None
    assert 16 < int(needed[1]) < 400
    assert "mirror_memory_mb allows 16" in text
    assert not (desk.data / "cells").exists()
    desk.close()
    roomy = Desk(tmp_path / "more", mirror_memory_mb=int(needed[1]) + 1)
    assert unstalled(roomy.open(**LARGE, views=(ViewSpec(mirror),), default_mirrors=False).log.notes.warnings) == []
    roomy.close()


def test_mirrors_of_the_configuration_that_do_not_fit_are_warned_of(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "data", mirror_memory_mb=16, mirrors=["n5"])
    ((code, text, _),) = unstalled(desk.open(**LARGE).log.notes.warnings)
    assert (code, "allows 16" in text) == ("no_mirror", True)
    desk.close()


def test_a_mirror_of_tiles_that_are_not_planned_is_told_to_wait(desk: Desk) -> None:
    """Where the format cannot grow along y and x."""
    growing = [ViewSpec(name) for name in ("n5", "ome-zarr", "wkw")]
    views = (ViewSpec("precomputed"), *growing, ViewSpec("hsds", settings={"format": "hsds", "pixels": "copy"}))
    more: dict[str, Any] = {"tiles": TileSpec((4, 4), 0), "views": views, "default_mirrors": False}
    one = desk.open("scan", **more, axes=(AxisSpec("row", 2), AxisSpec("column")))
    ((code, text, _),) = unstalled(one.log.notes.warnings)
    assert (code, "'precomputed'" in text) == ("mirror_waits", True)
    assert "sizes of row and column are not declared" in text
    desk.end("completed")
    planned = desk.open("planned", OTHER, **more, axes=(AxisSpec("row", 2), AxisSpec("column", 3)))
    assert unstalled(planned.log.notes.warnings) == []


@pytest.mark.parametrize("name", ["n5", "ome-zarr", "hsds"])
def test_the_memory_for_a_picture_of_unknown_size_is_checked(tmp_path: Path, name: str) -> None:
    """The slabs that one tile meets, in each of eight levels."""
    frame = FrameHint("<u2", (2048, 2048))
    more: dict[str, Any] = {"frame": frame, "tiles": TileSpec((100, 100), 0), "default_mirrors": False}
    small, large = (Desk(tmp_path / str(size), mirror_memory_mb=size) for size in (64, 1024))
    view = ViewSpec(name, settings={"format": "hsds", "pixels": "copy"} if name == "hsds" else {})
    code, text = small.refusal(**more, views=(view,))
    assert (code, "mirror_memory_mb allows 64" in text) == ("no_memory", True)
    plan = large.plan(**more, views=(view,))
    assert not plan.warnings
    small.close()
    large.close()


def test_mirrors_of_the_configuration_are_made_of_tiles_and_left_out_where_none_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"format": "wkw", "name": "small"}
    desk = Desk(tmp_path / "data", mirrors=["n5", named, "pyramid"])
    tiles: dict[str, Any] = {"tiles": TileSpec((4, 4)), "axes": (AxisSpec("row", 1), AxisSpec("column", 1))}
    one = desk.open("scan", **tiles, views=(ViewSpec("pyramid"),))
    assert unstalled(one.log.notes.warnings) == []
    assert [view.name for view in one.log.spec.views] == ["pyramid", "n5", "small"]
    desk.end("completed")
    assert (desk.data / "scan.pyramid" / "view.json").exists()
    monkeypatch.setattr(ViewProcess, "unavailable_reason", "no sockets")
    flat = desk.open("flat", OTHER)
    assert [text.partition(": ")[2] for _, text, _ in unstalled(flat.log.notes.warnings)] == ["no sockets"] * 2
    desk.end("completed")
    found = read_records(desk.data / "flat")
    assert {key: (result.state, result.reason) for key, result in found.items()} == {
        "n5": ("left_out", "no sockets"),
        "small.wkw": ("left_out", "no sockets"),
    }
    receipt = read_receipt(str(desk.data / "flat"))
    assert receipt is not None
    assert receipt.mirrors == dict.fromkeys(("n5", "small"), "left out: no sockets")
    desk.close()


def test_an_opening_that_breaks_off_gives_its_memory_back(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="can't start"):
        patch.setattr(threading.Thread, "start", start)
        desk.answer()
    assert desk.budget.used_bytes == 0
    desk.open()
    assert desk.budget.used_bytes > 0


def test_a_removed_mirror_of_one_name_elsewhere_costs_none_beside_the_dataset(desk: Desk) -> None:
    zarr = ViewSpec("ome-zarr")
    interrupted(desk, views=(zarr,))
    folder = desk.data / "cells"
    result = MirrorResult(name="ome-zarr", state="interrupted", frames=3, published=3)
    for place in (desk.data / "cells.ome.zarr", *(desk.data / f"nas{number}" / "x.ome.zarr" for number in range(8))):
        place.mkdir(parents=True, exist_ok=True)
        record_result(LocalDisk(), folder, place.with_name(f"{place.name}.view"), result)
        if place.parent != desk.data:
            place.rmdir()
    plan = desk.prepared(AcquisitionSpec(dataset_id=OTHER, name="cells", resume=True))
    assert [view.name for view in plan.spec.views] == ["ome-zarr"]
    assert not [text for code, text in plan.warnings if code == "mirror_removed"]


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_mirror_that_was_removed_stays_removed_unless_it_is_named_again(desk: Desk, *, is_asked: bool) -> None:
    n5, zarr = ViewSpec("n5"), ViewSpec("ome-zarr")
    interrupted(desk, views=(n5, zarr))
    folder = desk.data / "cells"
    for kind in ("n5", "ome-zarr"):
        result = MirrorResult(name=kind, state="interrupted", frames=3, published=3)
        (desk.data / f"cells.{kind}").mkdir(exist_ok=True)
        record_result(LocalDisk(), folder, desk.data / f"cells.{kind}.view", result)
    (desk.data / "cells.n5").rmdir()
    more: dict[str, Any] = {"views": (n5,), "default_mirrors": False} if is_asked else {}
    spec = AcquisitionSpec(dataset_id=OTHER, name="cells", resume=True, **more)
    plan = desk.prepared(spec)
    assert {view.name for view in plan.spec.views} == ({"n5", "ome-zarr"} if is_asked else {"ome-zarr"})
    said = [text for code, text in plan.warnings if code == "mirror_removed"]
    why = "mirror n5 was removed and is not made again; name it in `mirrors=` to make it"
    assert said == ([] if is_asked else [why])
    returned = desk.prepared(replace(spec, dataset_id=OWN, epoch=1, views=(n5,), default_mirrors=False))
    assert "n5" not in {view.name for view in returned.spec.views}  # it asked before the mirror was removed
    if not is_asked:
        assert requested_views(plan.resume.request if plan.resume else {}) == (zarr,)


@pytest.mark.parametrize("is_beside_removed", [False, True])
def test_a_removed_mirror_elsewhere_takes_none_of_its_name_with_it(desk: Desk, *, is_beside_removed: bool) -> None:
    zarr, odd = ViewSpec("ome-zarr"), ViewSpec("of-a-plug-in")
    interrupted(desk, views=(zarr,))
    folder = desk.data / "cells"
    state = json.loads((folder / "acqstream.json").read_text())
    state["request"] |= stored_views((zarr, odd))
    (folder / "acqstream.json").write_text(json.dumps(state))
    places = [desk.data / "cells.ome.zarr", desk.data.parent / "nas" / "cells.ome.zarr"]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        result = MirrorResult(name="ome-zarr", state="interrupted", frames=3, published=3)
        record_result(LocalDisk(), folder, place.with_name("cells.ome.zarr.view"), result)
    shutil.rmtree(places[not is_beside_removed])
    plan = desk.prepared(AcquisitionSpec(dataset_id=OTHER, name="cells", resume=True))
    assert plan.spec.views == ((odd,) if is_beside_removed else (zarr, odd))
    assert ("mirror_removed" in dict(plan.warnings)) == is_beside_removed
