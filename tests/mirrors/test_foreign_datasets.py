"""Datasets of other programs, mirrored and compared frame by frame with what our reader reads."""

from __future__ import annotations

import contextlib
import io
import shutil
from pathlib import Path

import ndstorage
import numpy as np
import pytest

import acqstream
from acqstream.errors import AcqStreamError, DatasetError
from acqstream.formats.ndtiff.folders import container_of
from acqstream.formats.registry import chunk_format, chunk_format_names
from acqstream.mirrors.comparison import compare
from acqstream.views.view_run import ViewState
from tests.log.make_frames import write_log
from tests.mirrors.mirror_cases import finish, frames_at, places_of, run_of

GOLDEN = Path(__file__).parents[1] / "golden" / "ndtiff"


def dataset_in(folder: Path) -> Path | None:
    """The dataset of a golden set, if it can be read whole."""
    found = [path for path in sorted(folder.iterdir()) if path.is_dir()]
    for path in [*found, folder]:
        try:
            with acqstream.open(path) as dataset:
                frames = [dataset.read_frame(key) for key in dataset.keys()]  # noqa: SIM118
        except AcqStreamError:
            continue
        return path if frames else None
    return None


SETS = [folder.name for folder in sorted(GOLDEN.iterdir()) if folder.is_dir()]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", SETS)
def test_golden_datasets(tmp_path: Path, name: str) -> None:
    source = dataset_in(GOLDEN / name)
    if source is None:
        pytest.skip("cannot be read whole")
    path = Path(shutil.copytree(source, tmp_path / "data"))
    with acqstream.open(path) as dataset:
        is_growing = dataset.writing  # as torn ones look
    run = run_of(path)
    if is_growing:
        while run.progress().state is not ViewState.WAITING:
            run.step()
        run.settle()
        run.close()
    else:
        finish(run)
    with acqstream.open(path) as dataset, acqstream.open(tmp_path / "data.n5") as mirror:
        array, level = mirror.levels[0].read(), mirror.levels[0]
        assert (level.axes, level.shape) == (dataset.levels[0].axes, dataset.levels[0].shape)
        if "row" in dataset.axes:
            assert np.array_equal(array, dataset.levels[0].read())  # the picture of the tiles
            return
        values = {axis: list(some) for axis, some in level.axis_values().items()}
        assert values == {axis: list(some) for axis, some in dataset.levels[0].axis_values().items()}
        count = 0
        for key in dataset.keys():  # noqa: SIM118
            spot = [some.index(key.get(axis, 0)) for axis, some in values.items()]
            assert np.array_equal(array[tuple(spot)], dataset.read_frame(key)), key
            count += 1
    assert count
    assert container_of(path) == path
    compared = compare(path, run.folder, run.progress().cursor)
    assert (compared.different, compared.text) == (0, "all equal")


def test_a_wrong_block_is_found_at_the_end(tmp_path: Path) -> None:
    path = Path(shutil.copytree(GOLDEN / "py_uint16" / "data", tmp_path / "data"))
    run = finish(run_of(path))
    block = max(
        (file for file in (tmp_path / "data.n5").rglob("*") if file.is_file()), key=lambda file: file.stat().st_size
    )
    content = bytearray(block.read_bytes())
    content[-1] ^= 1
    block.write_bytes(content)
    compared = compare(path, run.folder, run.progress().cursor)
    assert compared.different == 1
    assert "1 DIFFERENT: frame" in compared.text


@pytest.mark.parametrize("name", chunk_format_names())
def test_every_format_is_mirrored_to(tmp_path: Path, name: str) -> None:
    frames = frames_at(places_of(("time", "channel", "z"), {"time": 2, "channel": 2, "z": 37}), (70, 90))
    write_log(tmp_path / "cells", frames)
    run = finish(run_of(tmp_path / "cells", {"format": name}, name=name))
    compared = compare(tmp_path / "cells", run.folder, len(frames))
    assert (compared.frames, compared.text) == (len(frames), "all equal")
    with acqstream.open(tmp_path / f"cells{chunk_format(name).suffix}") as mirror:
        assert mirror.complete


def written_by_ndstorage(root: Path, begun_at: str, value: int) -> Path:
    summary = {"StartTime": begun_at}
    with contextlib.redirect_stdout(io.StringIO()):
        dataset = ndstorage.NDTiffDataset(str(root), name="acq", summary_metadata=summary, writable=True)
        for z in range(3):
            dataset.put_image({"z": z}, np.full((8, 8), value, "u2"), {})
        reader = dataset.current_writer.reader
        dataset.finish()
        reader.close()  # it forgets it
        dataset.close()
    return Path(dataset.path)


def test_another_dataset_in_the_same_place_is_not_taken_for_the_mirrored_one(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    container = tmp_path / "copy.n5"
    first = written_by_ndstorage(tmp_path / "first", "2026-11-20 10:00", 1)
    finish(run_of(first, container=container))
    finish(run_of(first, container=container))
    second = written_by_ndstorage(tmp_path / "second", "2026-11-21 10:00", 2)
    shutil.rmtree(first)
    second.rename(first)
    with pytest.raises(DatasetError, match="is a mirror of another dataset; --rebuild replaces it"):
        finish(run_of(first, container=container))
    finish(run_of(first, container=container, is_remade=True))
    with acqstream.open(container) as ds:
        assert ds.levels[0].read().max() == 2
