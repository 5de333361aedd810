"""Mirrors by reference: what a server and our reader read is the dataset, live, after kills, and where it was moved."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import acqstream
from acqstream.bench.reading import write_large_index
from acqstream.errors import ConfigError, CorruptDataset, DatasetError, UnsupportedFeature
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.mirrors import reference_view, row_table
from acqstream.mirrors.comparison import compare
from acqstream.mirrors.mirror_plan import check_request
from acqstream.mirrors.view_worker import view_maker
from acqstream.model.view_spec import ViewSpec
from acqstream.views.view_run import ViewRun, ViewState
from tests.formats.ndtiff.ndtiff_bytes import Folder, image
from tests.log.make_frames import LEAST_LIMIT_BYTES, Frame, frame_of, start_log, write_log
from tests.mirrors.mirror_cases import finish, frames_at, places_of, run_of, shuffled
from tests.mirrors.served_references import Served
from tests.waiting import until

HSDS: dict[str, Any] = {"format": "hsds"}
TIME_Z = places_of(("time", "z"), {"time": 5, "z": 4})
NAMED = places_of(("time", "channel"), {"time": 6}, {"channel": ["DAPI", "Cy5 µ"]})
Setting = Callable[[Any, str, Any], None]


def mirror(dataset: Path, **more: Any) -> ViewRun:
    return run_of(dataset, HSDS, "hsds", **more)


def container_of(dataset: Path) -> Path:
    return dataset.with_name(f"{dataset.name}.hsds")


def check(dataset: Path, *, is_as_stored: bool = True) -> None:
    """Our reader, and a server that follows the link, find the array of the dataset."""
    container = container_of(dataset)
    is_ours = (dataset / "acqstream.json").exists()
    with acqstream.open(dataset) as right, acqstream.open(container, follow_links=not is_ours) as found:
        expected = right.levels[0].read()
        assert found.complete == right.complete
        assert (found.axes, found.shape, found.dtype) == (right.axes, right.shape, right.dtype)
        assert np.array_equal(found.levels[0].read(), expected)
        assert found.summary_metadata == right.summary_metadata
        if is_as_stored:  # else places without frames are hidden, or come in another order
            assert np.array_equal(Served(container).read("level 0"), expected)


def lines_of(run: ViewRun) -> dict[str, Any]:
    return dict(run.view.summary())


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "frames",
    [
        frames_at(TIME_Z),
        frames_at(shuffled(TIME_Z, 3)),
        frames_at(NAMED),
        frames_at(TIME_Z, dtype="|u1"),
        frames_at(TIME_Z[:7], (9, 12, 3), "|u1"),
        frames_at([{}]),
        frames_at([{"z": 4}, {"z": 0}, {"z": 2}, {"z": -3}]),
        frames_at([{"time": 0}, {"time": 0, "z": 1}, {"time": 1, "z": 1}, {"time": 1}]),
        frames_at([*TIME_Z[:9], *TIME_Z[:4]]),  # again: the later ones count
        frames_at([{"time": t} for t in (0, 1, 2, 5, 6, 40)]),
    ],
    ids=["in order", "shuffled", "names", "8 bits", "RGB", "one", "far places", "without z", "again", "gaps"],
)
def test_the_array_is_that_of_the_dataset(tmp_path: Path, frames: Sequence[Frame]) -> None:
    write_log(tmp_path / "cells", frames, replace_duplicates=True)
    run = finish(mirror(tmp_path / "cells"))
    assert run.progress().state is ViewState.COMPLETE
    has_holes = {"z": -3} in [frame.axes for frame in frames] or {"time": 40} in [frame.axes for frame in frames]
    check(tmp_path / "cells", is_as_stored=not has_holes)
    compared = compare(run.path, run.folder, len(frames))
    assert (compared.frames, compared.text) == (len({tuple(one.axes.items()) for one in frames}), "all equal")
    assert lines_of(run)["container"] == str(container_of(tmp_path / "cells"))


def test_frames_in_many_stacks_and_many_table_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_table, "MAX_ENTRIES", 4)
    frames = frames_at(places_of(("time", "z"), {"time": 9, "z": 3}), (600, 500))
    write_log(tmp_path / "cells", frames, limit=LEAST_LIMIT_BYTES)
    run = finish(mirror(tmp_path / "cells"))
    assert len(set(Served(container_of(tmp_path / "cells")).table()["file_uri"].reshape(-1))) > 2
    assert lines_of(run)["stored_chunks"] == 9
    check(tmp_path / "cells")


def test_table_chunks_without_any_frame_name_a_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server takes the stack of a missing frame, too."""
    monkeypatch.setattr(row_table, "MAX_ENTRIES", 2)
    write_log(tmp_path / "cells", frames_at([{"time": t} for t in (0, 1, 2, 9)]))
    finish(mirror(tmp_path / "cells"))
    served = Served(container_of(tmp_path / "cells"))
    assert served.read("level 0").any(axis=(1, 2)).tolist() == [True] * 3 + [False] * 6 + [True]
    check(tmp_path / "cells", is_as_stored=False)


def test_no_frame_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path / "cells", frames_at(TIME_Z))

    def refuse(*_: Any) -> None:
        raise AssertionError("pixels are read")

    with monkeypatch.context() as patch:
        for name in ("read_pixels", "read_frames"):  # contrast is that of a few rows of the first frames
            patch.setattr(NDTiffReader, name, refuse)
        run = finish(mirror(tmp_path / "cells"))
        assert compare(run.path, run.folder, len(TIME_Z)).frames == len(TIME_Z)
    check(tmp_path / "cells")


def test_values_of_axes_and_numbers_of_the_metadata(tmp_path: Path) -> None:
    def metadata(number: int) -> dict[str, Any]:
        found = {"Exposure-ms": 10 + number, "ZPositionUm": number / 4, "Camera": "A", "a/b": True if number else 7}
        return found if number != 3 else {"Exposure-ms": 10**400}

    frames = [frame_of(number, axes=key, metadata=metadata(number)) for number, key in enumerate(NAMED)]
    write_log(tmp_path / "cells", frames)
    run = finish(mirror(tmp_path / "cells"))
    assert lines_of(run)["columns"] == ["exposure_ms", "stage_z_um", "Exposure-ms", "ZPositionUm", "a/b"]
    served = Served(container_of(tmp_path / "cells"))
    assert served.read("time").tolist() == [0, 1, 2, 3, 4, 5]
    assert [name.decode() for name in served.read("channel")] == ["DAPI", "Cy5 µ"]
    exposure, z = served.read("metadata/Exposure-ms"), served.read("metadata/ZPositionUm")
    right = np.array([metadata(number).get("ZPositionUm", np.nan) for number in range(12)]).reshape(6, 2)
    assert np.array_equal(z, right, equal_nan=True)
    assert exposure.shape == (6, 2)
    assert np.isnan(exposure[1, 1])  # larger than any float
    assert exposure[5, 1] == 21.0
    assert np.isnan(served.read("metadata/a:b")).sum() == 11


def test_metadata_that_cannot_be_read_are_missing_numbers(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cells", {"k": 1})
    for t in range(3):
        folder.add({"time": t}, image(t), metadata={"a": t})
    stack = folder.path / folder.stack
    data = bytearray(stack.read_bytes())
    at = data.index(b'{"a": 1')
    data[at : at + 1] = b"?"
    stack.write_bytes(data)
    run = mirror(tmp_path / "cells")
    until(lambda: run.step() is None or run.progress().cursor == 3, "taken", every_s=0.0)
    run.settle()
    run.close()
    assert Served(container_of(tmp_path / "cells")).read("metadata/a").tolist()[0] == 0


def test_a_resumed_one_writes_the_same_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after every few steps, at checkpoints of different ages."""
    monkeypatch.setattr(row_table, "MAX_ENTRIES", 4)
    monkeypatch.setattr(reference_view, "MAX_ROWS", 3)
    monkeypatch.setattr(reference_view, "ANNOUNCE_S", 0.0)
    frames = frames_at([*TIME_Z, *TIME_Z[:5]])
    write_log(tmp_path / "cells", frames, replace_duplicates=True)
    for number in range(60):
        run = mirror(tmp_path / "cells")
        for step in range(1 + number % 4):
            if run.step() is None:
                break
            if step == number % 3:
                run.save()
        run.close()  # without a checkpoint, as if it was killed
    finish(mirror(tmp_path / "cells"))
    check(tmp_path / "cells")
    killed = contents(container_of(tmp_path / "cells"))
    finish(mirror(tmp_path / "cells", is_remade=True))
    assert contents(container_of(tmp_path / "cells")) == killed


def contents(container: Path) -> dict[str, Any]:
    """All files but times."""
    found: dict[str, Any] = {}
    for path in sorted(container.rglob("*")):
        if path.is_symlink() or path.is_dir():
            continue
        content: Any = path.read_bytes()
        if path.suffix == ".json":
            content = without_times(json.loads(content))
        found[path.relative_to(container).as_posix()] = content
    return found


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        times = ("created", "modified", "lastModified")
        return {name: without_times(item) for name, item in value.items() if name not in times}
    return [without_times(item) for item in value] if isinstance(value, list) else value


class Clock:
    """Of the view: nothing waits for time."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return 1.7e9 + self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(reference_view, "time", clock)
    monkeypatch.setattr("acqstream.views.view_run.time", clock)
    return clock


def step_until_idle(run: ViewRun) -> None:
    for _ in range(6):
        run.step()


def test_an_incomplete_table_chunk_is_published_after_a_while(tmp_path: Path, clock: Clock) -> None:
    """Other software never sees a shape whose frames are not in the table, also where a server keeps old chunks."""
    frames = frames_at([{"time": t} for t in range(9)])
    with start_log(tmp_path / "cells") as log:
        run = mirror(tmp_path / "cells")

        def put(count: int) -> None:
            for frame in frames[log.received : log.received + count]:
                log.append(frame.header, frame.image)
            until(lambda: log.cursors().published == log.received, "published")
            step_until_idle(run)

        put(3)
        served = Served(container_of(tmp_path / "cells"))
        assert served.shape() == [0, 21, 26]
        clock.now_s += reference_view.PARTIAL_S - 1
        step_until_idle(run)
        assert served.shape() == [0, 21, 26]
        clock.now_s += 1
        step_until_idle(run)
        assert served.shape() == [3, 21, 26]
        assert served.read("level 0")[2].any()
        put(2)
        clock.now_s += reference_view.PARTIAL_S
        step_until_idle(run)
        assert served.shape() == [3, 21, 26]  # the chunk is written again; a server may have the old one
        clock.now_s += reference_view.SETTLE_S
        step_until_idle(run)
        assert served.shape() == [5, 21, 26]
        assert served.read("level 0")[4].any()
        run.close()


def test_a_space_that_changes_with_each_frame_delays_no_frame(tmp_path: Path, clock: Clock) -> None:
    """Capture times are never quite even, so documents are announced again and again."""
    frames = [
        frame_of(t, (21, 26), axes={"time": t}, metadata={"ElapsedTime-ms": 1000 * t + t * t % 7}) for t in range(60)
    ]
    with start_log(tmp_path / "cells") as log:
        run = mirror(tmp_path / "cells")
        for frame in frames:
            log.append(frame.header, frame.image)
            until(lambda: log.cursors().published == log.received, "published")
            clock.now_s += 1
            step_until_idle(run)
            late = log.received - Served(container_of(tmp_path / "cells")).shape()[0]
            assert late <= 11, f"{late} s late, and a server's cache has one more"  # one frame comes each second
        run.close()


def test_complete_table_chunks_are_published_at_once(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_table, "MAX_ENTRIES", 4)
    places = places_of(("time", "z"), {"time": 6, "z": 2})
    with start_log(tmp_path / "cells") as log:
        run = mirror(tmp_path / "cells")
        shapes = []
        for frame in frames_at(places):
            log.append(frame.header, frame.image)
            until(lambda: log.cursors().published == log.received, "published")
            clock.now_s += reference_view.ANNOUNCE_S
            step_until_idle(run)
            served = Served(container_of(tmp_path / "cells"))
            shapes.append(served.shape()[0])
            if shapes[-1]:
                assert served.read("level 0").any(axis=(-2, -1)).all()
        # An index is complete once the next one has begun: z was not declared. A chunk has two places of z unknown.
        assert shapes == sorted(shapes)
        assert shapes[-1] in (4, 5)
    finish(run)
    check(tmp_path / "cells")


def test_late_frames_of_published_chunks(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_table, "MAX_ENTRIES", 2)
    monkeypatch.setattr(row_table, "MAX_CHUNKS", 1)
    places: list[dict[str, Any]] = [{"time": t} for t in (0, 1, 3, 4, 5, 6, 2)]
    frames = frames_at(places)
    with start_log(tmp_path / "cells") as log:
        run = mirror(tmp_path / "cells")
        for frame in frames[:6]:
            log.append(frame.header, frame.image)
        until(lambda: log.cursors().published == log.received, "published")
        clock.now_s += 1
        step_until_idle(run)
        clock.now_s += 1
        step_until_idle(run)
        served = Served(container_of(tmp_path / "cells"))
        assert served.shape()[0] == 6
        assert not served.read("level 0")[2].any()
        log.append(frames[6].header, frames[6].image)
        until(lambda: log.cursors().published == log.received, "published")
        clock.now_s += reference_view.PARTIAL_S
        step_until_idle(run)
        assert served.read("level 0")[2].any()
        assert served.read("level 0")[3].any()
    clock.now_s += 100
    while run.step() is not None:
        clock.now_s += 1
    run.close()
    check(tmp_path / "cells")


def test_it_moves_together_with_the_dataset(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", frames_at(TIME_Z))
    finish(mirror(tmp_path / "cells"))
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    for name in ("cells", "cells.hsds", "cells.hsds.view"):
        (tmp_path / name).rename(tmp_path / "elsewhere" / "deep" / name)
    check(tmp_path / "elsewhere" / "deep" / "cells")


def test_a_missing_dataset_and_a_missing_stack_are_named(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", frames_at(TIME_Z, (600, 500)), limit=LEAST_LIMIT_BYTES)
    finish(mirror(tmp_path / "cells"))
    (second,) = (tmp_path / "cells").glob("*_1.tif")
    second.rename(tmp_path / "kept.tif")
    with acqstream.open(container_of(tmp_path / "cells")) as found:
        assert found.levels[0].read((0, 0)).any()
        with pytest.raises(CorruptDataset, match=r"NDTiffStack_1\.tif: .*is missing; .* no pixels of its own"):
            found.levels[0].read()
    (tmp_path / "cells").rename(tmp_path / "away")
    with acqstream.open(container_of(tmp_path / "cells")) as found:
        with pytest.raises(DatasetError, match=r"its pixels lie in the dataset .*cells, where neither"):
            found.levels[0].read()


def test_another_dataset_in_its_place_is_refused(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", frames_at(TIME_Z))
    finish(mirror(tmp_path / "cells"))
    state = tmp_path / "cells" / "acqstream.json"
    values = json.loads(state.read_bytes())
    state.write_text(json.dumps({**values, "dataset_id": "f" * 32}))
    with acqstream.open(container_of(tmp_path / "cells")) as found:
        with pytest.raises(DatasetError, match=r"is not the dataset of .*: its id is 'ffff"):
            found.levels[0].read()
    state.unlink()  # of another program: the header decides, for those who trust it
    with acqstream.open(container_of(tmp_path / "cells")) as found:
        with pytest.raises(UnsupportedFeature, match=r"has no acqstream.json; .* follow_links=True"):
            found.levels[0].read()
    with acqstream.open(container_of(tmp_path / "cells"), follow_links=True) as found:
        assert found.levels[0].read().any()
    (stack,) = (tmp_path / "cells").glob("*.tif")
    content = bytearray(stack.read_bytes())
    content[30] ^= 1
    stack.write_bytes(content)
    with acqstream.open(container_of(tmp_path / "cells"), follow_links=True) as found:
        with pytest.raises(DatasetError, match=r"the header of .*NDTiffStack.tif is another one"):
            found.levels[0].read()


@pytest.mark.parametrize(
    ("dataset", "stack"), [("../../home", "id_key"), ("../home", "id_key"), ("..", "id_key"), ("/etc", "passwd")]
)
def test_a_note_of_a_stranger_shows_no_other_file(tmp_path: Path, dataset: str, stack: str) -> None:
    words = b"BEGIN a file that only its owner may read, and that is no stack file\n"
    for folder in (tmp_path / "home", tmp_path / "data" / "home"):
        folder.mkdir(parents=True)
        (folder / "id_key").write_bytes(words)
    write_log(tmp_path / "data" / "cells", frames_at(TIME_Z))
    finish(mirror(tmp_path / "data" / "cells"))
    container = container_of(tmp_path / "data" / "cells")
    path = container / "acqstream-hsds.json"
    note = json.loads(path.read_bytes())
    header = {"bytes": 8, "xxh3": xxhash.xxh3_64_hexdigest(words[:8])}
    state = tmp_path / "data" / "home" / "acqstream.json"  # the stranger may send a whole folder
    state.write_text(json.dumps({"dataset_id": note["dataset_id"]}))
    path.write_text(json.dumps({**note, "dataset": dataset, "stacks": [stack], "header": header}))
    with acqstream.open(container) as found, pytest.raises(UnsupportedFeature, match="follow_links=True"):
        found.levels[0].read()


@pytest.mark.parametrize("step", [2**22, 2**62])
def test_a_table_that_inflates_is_refused_before(tmp_path: Path, step: int) -> None:
    write_log(tmp_path / "cells", frames_at(TIME_Z))
    finish(mirror(tmp_path / "cells"))
    path = container_of(tmp_path / "cells") / "acqstream-hsds.json"
    note = json.loads(path.read_bytes())
    path.write_text(json.dumps({**note, "steps": [step, *note["steps"][1:]], "uri_bytes": 1024}))
    with acqstream.open(container_of(tmp_path / "cells")) as found:
        with pytest.raises(CorruptDataset, match="chunks of the table have"):
            found.levels[0].read()


def test_the_link_of_the_bucket_is_never_followed(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", frames_at(TIME_Z))
    finish(mirror(tmp_path / "cells"))
    link = container_of(tmp_path / "cells") / "acqstream" / "stacks"
    assert link.readlink() == Path("../../cells")
    link.unlink()
    with acqstream.open(container_of(tmp_path / "cells")) as found, acqstream.open(tmp_path / "cells") as right:
        assert np.array_equal(found.levels[0].read(), right.levels[0].read())


@pytest.mark.parametrize("reason", ["system", "file system"])
def test_without_links_the_folder_above_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    from tests.storage.scripted_disk import ScriptedDisk

    disk = ScriptedDisk()
    if reason == "system":
        monkeypatch.setattr("acqstream.mirrors.reference_writer.has_folder_links", lambda: False)
    else:
        disk.fail("link_folder", code=1, for_good=True)
    write_log(tmp_path / "cells", frames_at(TIME_Z))
    run = finish(mirror(tmp_path / "cells", disk=disk))
    assert f"Serve {tmp_path} as the root, with the bucket cells.hsds" in run.progress().warning
    with acqstream.open(tmp_path / "cells") as right, acqstream.open(container_of(tmp_path / "cells")) as found:
        assert np.array_equal(found.levels[0].read(), right.levels[0].read())
        assert np.array_equal(Served(tmp_path, "cells.hsds").read("level 0"), right.levels[0].read())
    (tmp_path / "other").mkdir()
    with pytest.raises(DatasetError, match="expected both in one folder"):
        finish(mirror(tmp_path / "cells", disk=disk, container=tmp_path / "other" / "x.hsds"))


def test_a_mirror_in_another_folder_has_a_longer_link(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", frames_at(TIME_Z))
    (tmp_path / "a" / "b").mkdir(parents=True)
    finish(mirror(tmp_path / "cells", container=tmp_path / "a" / "b" / "x.hsds"))
    served = Served(tmp_path / "a" / "b" / "x.hsds")
    elsewhere = tmp_path / "a" / "b" / "x.hsds"
    with acqstream.open(elsewhere) as found, pytest.raises(UnsupportedFeature, match="no dataset in the folder"):
        found.levels[0].read()
    with acqstream.open(tmp_path / "cells") as right, acqstream.open(elsewhere, follow_links=True) as found:
        assert np.array_equal(found.levels[0].read(), right.levels[0].read())
        assert np.array_equal(served.read("level 0"), right.levels[0].read())


@pytest.mark.parametrize(("shape", "dtype"), [((9, 26), "<u2"), ((21, 9), "<u2"), ((21, 26), "|u1")])
def test_a_frame_unlike_the_others_ends_it_and_those_before_stay(
    tmp_path: Path, shape: tuple[int, ...], dtype: str
) -> None:
    frames = [*frames_at(TIME_Z[:6]), frame_of(6, shape, dtype, axes=TIME_Z[6])]
    write_log(tmp_path / "cells", frames)
    run = mirror(tmp_path / "cells")
    with pytest.raises(DatasetError, match=rf"frame 6 has shape \({shape[0]}, {shape[1]}\) and dtype .*{dtype[1:]}"):
        until(lambda: run.step() is None, "it ends", every_s=0.0)
    assert run.progress().cursor == 6
    run.close()


def test_an_axis_that_no_earlier_frame_had_ends_it(tmp_path: Path) -> None:
    with start_log(tmp_path / "cells") as log:
        run = mirror(tmp_path / "cells")
        for frame in frames_at([{"time": 0}, {"time": 1}]):
            log.append(frame.header, frame.image)
        until(lambda: run.step() is not None and run.progress().cursor == 2, "taken", every_s=0.0)
        late = frame_of(2, (21, 26), axes={"time": 2, "angle": 30})
        log.append(late.header, late.image)
        with pytest.raises(DatasetError, match="has the axis 'angle'"):
            until(lambda: run.step() is None, "it ends", every_s=0.0)
        run.close()


def test_tiles_are_refused_with_the_reason(tmp_path: Path) -> None:
    spec = ViewSpec("hsds", HSDS)
    request = {"tiles": {"overlap": [2, 2]}, "frame": {"shape": [8, 8], "dtype": "<u2"}}
    with pytest.raises(DatasetError, match=r"tiles overlap.*pixels=copy can"):
        check_request(spec, request, None)  # type: ignore[arg-type]
    check_request(spec, {"frame": {"shape": [8, 8], "dtype": "<u2"}}, None)  # type: ignore[arg-type]


def test_options_and_processes_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="compression needs chunks of its own"):
        view_maker(ViewSpec("hsds", {**HSDS, "pixels": "reference", "compression": "zlib"}))
    with pytest.raises(ConfigError, match="is made by one process"):
        view_maker(ViewSpec("hsds", HSDS), runner=object())


def test_stacks_of_other_programs(tmp_path: Path) -> None:
    """Big-endian ones, and names of their own; one that is compressed is refused."""
    folder = Folder(tmp_path / "cells", {"k": 1}, order=">")
    for t in range(3):
        folder.add({"time": t}, image(t))
    finish(mirror(tmp_path / "cells"))
    check(tmp_path / "cells")


def test_a_container_of_another_dataset_is_left_alone(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", frames_at(TIME_Z))
    container_of(tmp_path / "cells").mkdir()
    (container_of(tmp_path / "cells") / "mine").write_bytes(b"")
    with pytest.raises(DatasetError, match="is not a mirror of cells"):
        finish(mirror(tmp_path / "cells"))


def test_damaged_documents_restart_it(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", frames_at(TIME_Z))
    finish(mirror(tmp_path / "cells"))
    note = container_of(tmp_path / "cells") / "acqstream-hsds.json"
    note.write_text("{")
    run = finish(mirror(tmp_path / "cells"))
    assert run.reason.startswith("restarted: its files were changed")
    check(tmp_path / "cells")
    shutil.rmtree(container_of(tmp_path / "cells"))
    assert finish(mirror(tmp_path / "cells")).reason == "restarted: its files are missing"
    check(tmp_path / "cells")


def test_table_and_scales_take_few_bytes_per_frame(tmp_path: Path) -> None:
    """As a million frames do: with fewer ones the documents weigh more."""
    path = write_large_index(tmp_path, 20_000)
    run = mirror(path)
    until(lambda: run.step() is not None and run.progress().cursor == 20_000, "taken", every_s=0.0)
    until(lambda: run.step() is not None and run.progress().state is ViewState.WAITING, "waiting", every_s=0.0)
    run.settle()
    run.close()
    files = [file for file in container_of(path).rglob("*") if file.is_file() and not file.is_symlink()]
    taken = sum(-(-file.stat().st_size // 4096) * 4096 for file in files)
    assert taken / 20_000 < 20
    with acqstream.open(container_of(path)) as found:
        assert found.levels[0].shape == (199, 4, 25, 32, 32)  # the last time may get more frames
