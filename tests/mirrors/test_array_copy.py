"""Copies of arrays from one chunk format into another one."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.registry import chunk_format, find_format
from acqstream.mirrors import array_copy
from acqstream.mirrors.array_copy import ArrayPlanes, compare_copy, copy_array
from acqstream.mirrors.mirror_plan import Budget
from acqstream.storage.stores.data_path import data_path_of
from tests.command import command
from tests.formats.ndtiff.ndtiff_bytes import Folder, image

GOLDEN = Path(__file__).parents[1] / "golden"
BUDGET = Budget(2**28, 2)
SUMMARY = {"PixelSizeUm": 0.5, "z-step_um": 2.0, "User": "Ada"}
STAGE = {"XPositionUm": 100.0, "YPositionUm": 50.0}
OPTIONS = {
    "n5": ["--blocks", "3,16,32"],
    "wkw": ["--option", "cube=64"],
    "hsds": ["--option", "pixels=copy", "--option", "chunks=[3,16,32]"],
}


def run(*arguments: object) -> int:
    return command(*arguments)


def mirror(source: Path, to: str, out: Path | None = None, *more: str) -> Path:
    place = [] if out is None else [out]
    assert run("mirror", source, *place, "--to", to, *OPTIONS[to], *more) == 0
    return out or source.with_suffix(f".{to}")


@pytest.fixture(params=["gray", "rgb", "sparse"])
def frames(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Datasets of several kinds; in the last one with negative, sparse and missing values."""
    folder = Folder(tmp_path / request.param, SUMMARY)
    shape, dtype = ((40, 70, 3), "|u1") if request.param == "rgb" else ((40, 70), "<u2")
    times, depths = ((0, 2, 1000), (-1, 0, 3)) if request.param == "sparse" else (range(3), range(4))
    for number, time in enumerate(times):
        for channel in ("DAPI", "GFP"):
            for z in depths:
                if request.param != "sparse" or (time, channel) != (2, "GFP"):
                    metadata = STAGE | {"ZPositionUm": 2.0 * z}
                    pixels = image(100 * number + 10 * (z + 1) + len(channel), shape, dtype)
                    folder.add({"time": time, "channel": channel, "z": z}, pixels, metadata=metadata)
    return folder.path


def facts(path: Path) -> list[dict[str, Any]]:
    with acqstream.open(path) as ds:
        return [
            {
                "axes": level.axes,
                "values": {name: list(values) for name, values in level.axis_values().items()},
                "units": level.units,
                "scale": level.scale,
                "translation": level.translation,
                "pixels": level.read().tolist(),
                "user": level.attributes["User"],
            }
            for level in ds.levels
        ]


@pytest.mark.parametrize("options", [(), ("--option", "shards={}")])
def test_a_copy_into_precomputed_has_the_pixels(frames: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    """Names of its files contain the size of y and x: it must be known before the first one is stored."""
    made, copied = mirror(frames, "n5"), tmp_path / "copied.precomputed"
    assert run("mirror", made, copied, "--to", "precomputed", *options) == 0
    with acqstream.open(made) as source, acqstream.open(copied) as copy:
        assert np.array_equal(copy.levels[0].read(), source.levels[0].read())
    assert run("verify", copied) == 0


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("first", "second"), [("n5", "wkw"), ("wkw", "n5"), ("n5", "hsds"), ("hsds", "n5")])
def test_a_copy_equals_a_mirror_of_the_frames(frames: Path, tmp_path: Path, first: str, second: str) -> None:
    made = mirror(frames, first)
    copied = mirror(made, second, tmp_path / f"copied.{second}")
    direct = mirror(frames, second)
    assert facts(copied) == facts(direct)
    assert facts(copied)[0] == facts(frames)[0]
    assert run("verify", copied) == 0


def test_a_dataset_of_another_hsds_writer_is_copied(tmp_path: Path) -> None:
    """By its path in HDF5, which no folder has."""
    source = GOLDEN / "hsds" / "hsds_1.0.2" / "bkt" / "home" / "acq.h5" / "entry" / "data" / "frames"
    for name in ("n5", "hsds"):
        copied = mirror(source, name, tmp_path / f"copied.{name}")
        with acqstream.open(source) as original, acqstream.open(copied) as copy:
            right = original.levels[0].read()
            assert np.array_equal(copy.levels[0].read().reshape(right.shape), right)
        assert run("verify", copied) == 0
    assert run("info", source) == 0
    assert run("verify", source) == 0


def test_a_copy_lies_beside_and_is_made_once(frames: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = mirror(frames, "n5")
    capsys.readouterr()
    assert run("mirror", made, "--to", "wkw", *OPTIONS["wkw"], "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["path"] == str(frames.with_suffix(".wkw"))
    assert result["stored_chunks"] > 0
    assert (result["state"], result["different"]) == ("complete", 0)
    assert run("mirror", made, "--to", "wkw", *OPTIONS["wkw"]) == 0
    assert "complete, 0 chunks stored" in capsys.readouterr().out
    assert run("mirror", made, "--to", "wkw", "--option", "cube=32") != 0
    assert "--rebuild replaces it" in capsys.readouterr().err
    assert run("mirror", made, "--to", "wkw", "--option", "cube=32", "--rebuild") == 0


def test_what_is_there_stays(frames: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = mirror(frames, "n5")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert run("mirror", made, tmp_path / "mine", "--to", "wkw", "--rebuild") != 0
    assert "is not a mirror made by acqstream" in capsys.readouterr().err
    mirror(frames, "wkw")  # of the frames, not of the copy
    assert run("mirror", made, "--to", "wkw") != 0
    assert "mirror of another dataset" in capsys.readouterr().err
    assert run("mirror", made, made, "--to", "n5") == 2
    assert run("mirror", made, "--to", "pyramid") == 2
    assert run("mirror", made, "--to", "wkw", "--follow") == 2
    assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"


def formats_of(path: Path, to: str) -> tuple[ChunkFormat[Any], ChunkFormat[Any]]:
    found = find_format(path)
    assert isinstance(found, ChunkFormat)
    return found, chunk_format(to)


def test_an_interrupted_copy_starts_again(frames: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, container = mirror(frames, "n5"), tmp_path / "copied.wkw"
    found, target = formats_of(made, "wkw")
    settings = {"format": "wkw", "cube": 64}
    read, calls = ArrayPlanes.read, [0]

    def fail(planes: ArrayPlanes, place: Any) -> Any:
        calls[0] += 1
        if calls[0] > 7:
            raise acqstream.DatasetError("pulled out")
        return read(planes, place)

    monkeypatch.setattr(ArrayPlanes, "read", fail)
    with pytest.raises(acqstream.DatasetError, match="pulled out"):
        copy_array(made, found, target, container, settings, budget=BUDGET)
    monkeypatch.setattr(ArrayPlanes, "read", read)
    copied = copy_array(made, found, target, container, settings, budget=BUDGET)
    assert copied.stored_chunks > 0
    assert facts(container)[0] == facts(made if frames.name == "sparse" else frames)[0]
    assert compare_copy(made, found, target, container, lambda _done, _total: None)[1] == 0


def test_a_changed_copy_is_found_different(frames: Path, tmp_path: Path) -> None:
    made = mirror(frames, "n5")
    copied = mirror(made, "wkw", tmp_path / "copied.wkw")
    found, target = formats_of(made, "wkw")
    shutil.rmtree(made)
    folder = Folder(tmp_path / "others", SUMMARY)
    with acqstream.open(frames) as ds:
        for number, key in enumerate(ds.keys()):
            pixels = ds.read_frame(key)
            pixels.flat[5] ^= number == 3
            folder.add(key, pixels, metadata=ds.read_metadata(key))
    mirror(folder.path, "n5", made)
    assert compare_copy(made, found, target, copied, lambda _done, _total: None)[1] == 1


@pytest.mark.parametrize("max_bytes", [0, 2**30])
def test_planes_are_those_of_the_stored_array_with_chunks_in_memory_and_without(frames: Path, max_bytes: int) -> None:
    made = mirror(frames, "n5")
    (reader, *_) = formats_of(made, "n5")[0].open(data_path_of(made))
    spec = array_copy.array_of_copy(reader.spec)
    planes = ArrayPlanes(reader, spec, max_bytes)
    outer = [size for name, size in zip(spec.axes, spec.shape, strict=True) if name not in ("y", "x", "c")]
    stored = 0
    for place in np.ndindex(*outer):
        plane = planes.read(place)
        stored += plane is not None and bool(plane.any())
        assert plane is None or plane.shape == tuple(
            size for name, size in zip(spec.axes, spec.shape, strict=True) if name in ("y", "x", "c")
        )
    with acqstream.open(frames) as ds:
        assert stored == len(list(ds.keys()))


@pytest.mark.parametrize("name", ["n5/multiscale_bdv.n5", "n5/java.n5/u16_lz4"])
def test_a_foreign_array_is_copied(name: str, tmp_path: Path) -> None:
    copied = mirror(GOLDEN / name, "wkw", tmp_path / "copied.wkw")
    with acqstream.open(GOLDEN / name) as ds, acqstream.open(copied) as copy:
        source, other = ds.levels[0], copy.levels[0]
        pixels = other.read()
        extra = tuple(at for at, axis in enumerate(other.axes) if axis not in source.axes)
        assert np.array_equal(pixels.squeeze(extra), source.read())
        assert [other.scale[other.axes.index(axis)] for axis in source.axes] == pytest.approx(source.scale)
    assert run("verify", copied) == 0


def test_a_growing_array_is_refused(tmp_path: Path, frames: Path) -> None:
    made = mirror(frames, "n5")
    found, target = formats_of(made, "wkw")
    growing: Any = list(found.open(data_path_of(made)))
    growing[0].level.complete = False
    with pytest.raises(acqstream.DatasetError, match="still being written"):
        grows = replace(found, open=lambda _path: growing)
        copy_array(made, grows, target, tmp_path / "a.wkw", {"format": "wkw"}, budget=BUDGET)


@pytest.mark.parametrize("shape", [(0, 5), (4, 0), (0, 4, 5)])
def test_an_array_without_items_is_refused(
    tmp_path: Path, shape: tuple[int, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": "complex64",
        "fill_value": [0, 0],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1] * len(shape)}},
        "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    }
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "zarr.json").write_text(json.dumps(document), encoding="utf-8")
    assert run("mirror", tmp_path / "a", tmp_path / "copy", "--to", "ome-zarr") == 1
    assert "has no items to copy" in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("compression", ["none", "blosc"])
@pytest.mark.parametrize("members", [(), ("position",)])
def test_no_shape_names_data_that_will_come(tmp_path: Path, compression: str, members: tuple[str, ...]) -> None:
    """Whenever a piece was stored, documents of the copy name no item; at the end all of them."""
    folder, target = Folder(tmp_path / "cells", SUMMARY), tmp_path / "copied.ome.zarr"
    axes = (*members, "time")
    for number, place in enumerate(np.ndindex(*(3 for _ in axes))):
        folder.add(dict(zip(axes, map(int, place), strict=True)), image(number + 1, (40, 70), "<u2"))
    made = mirror(folder.path, "n5")
    shapes: list[int] = []

    def look(_done: int, _total: int) -> None:
        documents = [json.loads(path.read_text()) for path in target.rglob("zarr.json")]
        shapes.extend(np.prod(one["shape"]) for one in documents if one["node_type"] == "array")
        assert not any("multiscales" in one["attributes"].get("ome", {}) for one in documents)

    found = chunk_format("ome-zarr")
    settings = {"format": "ome-zarr", "compression": compression, "chunks": [1, 16, 16]}
    copy_array(made, chunk_format("n5"), found, target, settings, budget=BUDGET, on_progress=look)
    assert shapes
    assert set(shapes) == {0}
    assert facts(target)[0]["pixels"] == facts(made)[0]["pixels"]
    image_of = target / ("2" if members else "")
    assert "multiscales" in json.loads((image_of / "zarr.json").read_text())["attributes"]["ome"]
    assert compare_copy(made, chunk_format("n5"), found, target, lambda _done, _total: None)[1] == 0


def test_chunks_that_fit_in_memory_are_decoded_once(frames: Path) -> None:
    made = mirror(frames, "n5", None, "--blocks", "1,30,30")  # the picture's last row and column of chunks are thin
    (reader, *_) = formats_of(made, "n5")[0].open(data_path_of(made))
    spec = array_copy.array_of_copy(reader.spec)
    decoded: list[Any] = []
    read = reader.read_chunk

    def counted(position: Any) -> Any:
        decoded.append(position)
        return read(position)

    reader.read_chunk = counted  # type: ignore[method-assign]
    planes = ArrayPlanes(reader, spec, int(np.prod(spec.shape)) * spec.dtype.itemsize)
    outer = [size for name, size in zip(spec.axes, spec.shape, strict=True) if name not in ("y", "x", "c")]
    for place in [*np.ndindex(*outer)] * 2:
        planes.read(place)
    assert len(decoded) == len(set(decoded))


def test_damaged_parts_of_a_note_that_only_describe_are_left_out(frames: Path) -> None:
    made = mirror(frames, "n5")
    document = made / "attributes.json"
    note = json.loads(document.read_text())
    with acqstream.open(made) as ds:
        axes = ds.levels[0].axes
    for name, damaged in (("labels", None), ("labels", {"time": [1]}), ("attributes", [1])):
        changed = {**note, "acqstream": {**note["acqstream"], name: damaged}}
        document.write_text(json.dumps(changed))
        with acqstream.open(made) as ds:
            assert ds.levels[0].axes == axes, name
