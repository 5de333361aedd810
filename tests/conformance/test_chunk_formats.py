"""What every chunk format must do, asked of each in the registry by the contract alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.errors import CorruptDataset, DatasetError, DatasetExists
from acqstream.formats import registry
from acqstream.formats.check_report import CheckReport
from acqstream.formats.registry import CHUNK_FORMATS
from acqstream.storage.stores.data_path import DataPath, data_path_of
from acqstream.storage.stores.local_store import LocalStore
from tests.checksum_files import is_list
from tests.conformance.small_containers import CASES, PLUG_INS, Made, make

LOOKS = [(DataPath, "is_folder"), (DataPath, "is_object"), (DataPath, "children"), (DataPath, "content")]
LOOKS += [(DataPath, "names"), (DataPath, "open"), (LocalStore, "get")]  # type: ignore[list-item]


@pytest.fixture(autouse=True)
def _plug_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The formats of other packages are held to the same contract."""
    monkeypatch.setattr(registry, "entry_points", lambda *, group: PLUG_INS if group == registry.ENTRY_POINTS else ())
    registry.foreign_formats.cache_clear()
    yield
    registry.foreign_formats.cache_clear()


@pytest.fixture(params=CASES)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    return make(request.param, tmp_path)


def test_every_format_has_a_case() -> None:
    assert {name.partition(" ")[0] for name in CASES} == {*CHUNK_FORMATS, *(entry.name for entry in PLUG_INS)}
    for name in CHUNK_FORMATS:
        growing = [case.growing for case_name, case in CASES.items() if case_name.partition(" ")[0] == name]
        assert any(growing), name


def test_levels_cover_the_array(made: Made) -> None:
    assert made.levels[0].factors == (1,) * len(made.levels[0].axes)
    for level in made.levels:
        assert len(level.chunk_shape) == len(level.axes)
        assert made.format.layout(made.plan, made.options).max_encode_memory(level) >= 0
        for size, full, factor in zip(level.shape, made.levels[0].shape, level.factors, strict=True):
            assert max(1, full // factor) <= size <= -(-full // factor)


def test_what_is_stored_is_read(made: Made) -> None:
    made.store_all()
    made.writer.finish(made.levels)
    assert made.format.detect(data_path_of(made.folder))
    with acqstream.open(made.folder) as ds:
        assert (ds.format, ds.complete, len(ds.levels)) == (made.format.name, True, len(made.levels))
        for number, level in enumerate(ds.levels):
            assert (level.axes, level.shape) == (made.levels[number].axes, made.levels[number].shape)
            assert level.dtype == np.uint16
            assert np.array_equal(level.read(), made.part(number))
            assert np.array_equal(level.to_dask().compute(scheduler="synchronous"), made.part(number))
            assert level.missing_count == 0
    report = CheckReport()
    made.format.check(data_path_of(made.folder), report)
    assert not report.problems


@pytest.mark.thinned(2)
def test_readers_at_every_step_see_no_end_before_the_last_one(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that opens a container meanwhile gets a growing array or an error, and no array of another writer."""
    made.folder = tmp_path / f"looked-at{made.format.suffix}"
    seen: list[str] = []

    def look() -> None:
        try:
            with acqstream.open(made.folder) as ds:
                seen.append("complete" if ds.complete else "growing")
                assert all(level.axes == made.levels[0].axes for level in ds.levels)
        except DatasetError:
            seen.append("error")

    def then_look(own: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            found = own(*given, **more)
            look()
            return found

        return call

    for name in ("put", "ensure", "append", "write", "rename", "delete"):
        monkeypatch.setattr(LocalStore, name, then_look(getattr(LocalStore, name)))
    made.again()
    made.store_all()
    for number, level in enumerate(made.levels):
        made.writer.grow(number, level.shape)
    made.writer.sync()
    assert seen[-1] == "growing"
    assert "complete" not in seen
    made.writer.finish(made.levels)
    first = seen.index("complete")
    assert set(seen[first:]) == {"complete"}
    made.again()
    made.writer.finish(made.levels)
    assert set(seen[first:]) == {"complete"}


@pytest.mark.thinned(2)
def test_a_container_that_begins_at_any_step_of_opening_grows(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folders exist before our note. A reader that looks in between must not take it for another writer's array."""

    def seen_when_begun_at(step: int) -> str:
        """What a reader makes of a container that is there from its look of this number on; "" if it looks less."""
        made.folder = tmp_path / str(step) / f"cells{made.format.suffix}"
        for path in [begun, *folders]:
            (made.folder / path.relative_to(begun)).mkdir(parents=True)
        looks = itertools.count()

        def after_begin(own: Callable[..., Any]) -> Callable[..., Any]:
            def call(*given: Any, **more: Any) -> Any:
                if next(looks) == step:
                    rmtree(made.folder)
                    begun.rename(made.folder)
                return own(*given, **more)

            return call

        with monkeypatch.context() as planted:
            for owner, name in LOOKS:
                planted.setattr(owner, name, after_begin(getattr(owner, name)))
            try:
                with acqstream.open(made.folder) as ds:
                    found = "complete" if ds.complete else "growing"
            except DatasetError:
                found = "error"
        if begun.exists():
            return ""
        made.folder.rename(begun)
        return found

    made.store_all()
    begun = made.folder.rename(tmp_path / "begun")
    folders = sorted(path for path in begun.rglob("*") if path.is_dir())
    found = [*itertools.takewhile(bool, map(seen_when_begun_at, itertools.count()))]
    assert {*found} <= {"growing", "error"}, found
    assert "growing" in found


class Killed(BaseException):
    """The process ends."""


@pytest.mark.thinned(2)
def test_a_process_killed_at_any_step_of_the_beginning_is_caught_up_with(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_killed_at(step: int) -> bool:
        """Return whether the process was killed before its document of this number."""
        steps, ensure = itertools.count(), LocalStore.ensure

        def put_or_end(store: LocalStore, key: str, content: bytes) -> None:
            if next(steps) == step:
                raise Killed
            ensure(store, key, content)

        with monkeypatch.context() as planted:
            planted.setattr(LocalStore, "ensure", put_or_end)
            try:
                made.again()
            except Killed:
                return True
        return False

    for step in itertools.count():
        made.folder = tmp_path / str(step) / f"cells{made.format.suffix}"
        made.folder.parent.mkdir()
        if not is_killed_at(step):
            break
        made.again()
        made.store_all()
        made.writer.finish(made.levels)
        with acqstream.open(made.folder) as ds:
            assert ds.complete
            assert np.array_equal(ds.levels[0].read(), made.part(0))
    assert step


def test_encoding_takes_either_byte_order_and_changes_nothing(made: Made) -> None:
    position = (0,) * len(made.levels[0].axes)
    chunk = made.chunk(0, position)
    stored = [b"".join(made.writer.encode(0, position, chunk.astype(f"{order}u2"))) for order in "<>"]
    assert stored[0] == stored[1]
    assert np.array_equal(chunk, made.chunk(0, position))


@pytest.mark.thinned(2)
def test_every_step_may_be_done_again(made: Made) -> None:
    made.store_all()
    made.again()
    made.store_all()
    for number, level in enumerate(made.levels):
        made.writer.grow(number, level.shape)
    made.writer.sync()
    made.writer.finish(made.levels)
    made.writer.finish(made.levels)
    with acqstream.open(made.folder) as ds:
        assert np.array_equal(ds.levels[0].read(), made.part(0))


def test_a_missing_chunk_is_zeros_until_it_is_there(made: Made) -> None:
    grid = made.levels[0].grid_shape
    *stored, missing = np.ndindex(*grid)
    for position in stored:
        made.store(0, position)
    made.writer.sync()
    with acqstream.open(made.folder) as ds:
        expected = made.part(0).copy()
        expected[made.levels[0].region(missing)] = 0
        assert np.array_equal(ds.levels[0].read(), expected)
        assert not ds.complete
        made.store(0, missing)
        made.writer.sync()
        ds.refresh()
        assert np.array_equal(ds.levels[0].read(), made.part(0))


def test_an_array_that_grows_is_read_as_far_as_it_was_announced(made: Made, tmp_path: Path) -> None:
    case = made.case
    if not case.growing:
        pytest.skip("as long as was declared")
    at = made.levels[0].axes.index(case.growing)
    made.folder = tmp_path / f"growing{made.format.suffix}"
    short = [replace(level, shape=_with(level.shape, at, 1)) for level in made.levels]
    made.again(short)
    for number, level in enumerate(made.levels):
        for position in np.ndindex(*level.grid_shape):
            made.store(number, position)
    with acqstream.open(made.folder) as ds:
        assert ds.shape == short[0].shape
        for number, level in enumerate(made.levels):
            made.writer.grow(number, level.shape)
        ds.refresh()
        assert ds.shape == made.levels[0].shape
        for number, seen in enumerate(ds.levels):
            assert np.array_equal(seen.read(), made.part(number))
        made.writer.finish(short)
        ds.refresh()
        assert (ds.shape, ds.complete) == (short[0].shape, True)


def _with(shape: tuple[int, ...], at: int, size: int) -> tuple[int, ...]:
    return (*shape[:at], size, *shape[at + 1 :])


def test_other_data_are_not_gone_on_with(made: Made) -> None:
    made.store_all()
    wider = [replace(level, dtype=np.dtype("uint8")) for level in made.levels]
    with pytest.raises(DatasetExists):
        made.open(wider)


def test_a_chunk_cut_short_is_told_by_reading_and_by_check(made: Made) -> None:
    made.store_all()
    made.writer.finish(made.levels)
    files = (path for path in made.folder.rglob("*") if path.is_file() and not is_list(path))
    path = max(files, key=lambda path: path.stat().st_size)
    path.write_bytes(path.read_bytes()[:-7])
    with acqstream.open(made.folder) as ds, pytest.raises(CorruptDataset) as caught:
        for level in ds.levels:
            level.read()
    assert Path(caught.value.path or "") == path
    report = CheckReport()
    made.format.check(data_path_of(made.folder), report)
    assert path in {Path(problem.path) for problem in report.problems}
