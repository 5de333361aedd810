"""Datasets in napari's model of a viewer, opened through its plug-in machinery."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.dataset.napari_live import INTERVAL_MS, LiveLayers, image_layers, live_layers, show_layers
from tests.formats.ndtiff.ndtiff_bytes import GOLDEN, STACK, Folder, image
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import image_of
from tests.log.growing_run import GrowingRun, picture_value
from tests.log.make_frames import dim_frame, start_log
from tests.waiting import in_time

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout_s(180),  # loading napari on a busy machine
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # its own
]

napari = pytest.importorskip("napari")
WAIT_S = 20.0
PLUGIN = "acqstream"
N5 = GOLDEN.parent / "n5" / "java.n5" / "u16_raw"  # z, y, x: 13 x 29 x 37


@pytest.fixture(scope="module")
def plugins() -> Any:
    """npe2's manager, which knows what is installed: ours by its entry point."""
    import npe2

    manager = npe2.PluginManager.instance()
    manager.discover()
    return manager


@pytest.fixture
def viewer(plugins: Any) -> Iterator[Any]:
    from napari.components import ViewerModel

    model = ViewerModel()
    yield model
    model.layers.clear()


def shown(layer: Any) -> Any:
    """The picture that napari took from the layer's data for where the sliders are."""
    return np.asarray(layer._slice.image.raw)


def test_the_plugin_is_found_by_its_manifest(plugins: Any) -> None:
    manifest = plugins.get_manifest(PLUGIN)
    assert manifest.contributions.readers[0].accepts_directories


@pytest.mark.parametrize(
    "name", ["py_uint16", "java_pyramid_u16", "java_rgb", "java_pyramid_rgb_odd", "py_string_axes"]
)
def test_layers_show_what_the_levels_hold(viewer: Any, name: str) -> None:
    path = GOLDEN / name / "data"
    layers = viewer.open(path, plugin=PLUGIN)
    with acqstream.open(path) as ds:
        axes = ds.levels[0].axis_values()
        channel_axis = list(axes).index("channel") if "channel" in axes else None
        assert len(layers) == len(axes.get("channel", [None]))
        for position, layer in enumerate(layers):
            assert layer.rgb == (ds.levels[0].axes[-1] == "c")
            assert layer.multiscale == (len(ds.levels) > 1)
            arrays = list(layer.data) if layer.multiscale else [layer.data]
            assert len(arrays) == len(ds.levels)
            whole = ds.levels[0].read()
            whole = whole if channel_axis is None else whole.take(position, channel_axis)
            assert np.array_equal(np.asarray(arrays[0]), whole)
            for number, array in enumerate(arrays):
                assert array.layout.origin == tuple(start // 2**number for start in arrays[0].layout.origin)


def test_lower_levels_show_the_same_place(viewer: Any) -> None:
    path = GOLDEN / "java_pyramid_u16" / "data"
    (first, _) = viewer.open(path, plugin=PLUGIN)
    with acqstream.open(path) as ds:
        for number, array in enumerate(first.data):
            level = ds.levels[number]
            top, left = (start // 2**number for start in ds.levels[0].origin)
            y, x = top - level.origin[0], left - level.origin[1]
            expected = level.read((0, slice(y, y + array.shape[0]), slice(x, x + array.shape[1])))
            height, width = expected.shape  # the canvas of the level may end before the picture does
            assert np.array_equal(array[:height, :width], expected)
            assert not array[height:].any()
            assert not array[:, width:].any()
            assert expected.any()


def test_names_colours_contrast_and_places(viewer: Any, tmp_path: Path) -> None:
    summary = {"ChNames": ["DAPI", "GFP"], "PixelSizeUm": 0.5, "z-step_um": 2.0, "AxisOrder": ["channel", "z"]}
    folder = Folder(tmp_path / "cells", summary)
    for channel in range(2):
        for z in (-3, -1):
            folder.add({"channel": channel, "z": z}, image(channel))
    settings = '{"DAPI": {"Color": -16776961, "Min": 10, "Max": 500, "Gamma": 1.0}}{"rest of an older file"'
    (folder.path / "display_settings.txt").write_text(settings)
    dapi, gfp = viewer.open(folder.path, plugin=PLUGIN)
    assert (dapi.name, gfp.name) == ("cells DAPI", "cells GFP")
    assert np.allclose(dapi.colormap.map(np.array([1.0]))[0, :3], (0, 0, 1))
    assert tuple(dapi.contrast_limits) == (10, 500)
    low, high = np.percentile([image(1), image(1)], (0.1, 99.9))
    assert tuple(gfp.contrast_limits) == (np.floor(low), np.ceil(high))
    assert tuple(map(str, dapi.units)) == ("micrometer",) * 3
    assert tuple(dapi.scale) == (4.0, 0.5, 0.5)
    assert tuple(dapi.translate) == (-6.0, 0.0, 0.0)
    assert dapi.axis_labels == ("z", "y", "x")


@pytest.mark.parametrize("way", ["plugin", "show_layers", "grown"])
def test_frames_of_12_bits_are_visible(viewer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Between the limits they are bright, and the slider reaches all values of 12 bits."""
    frames = [dim_frame(n, {"time": n // 2, "channel": n % 2}, elapsed_ms=250 * (n // 2)) for n in range(6)]
    summary = {"ChNames": ["DAPI", "Cy5"], "PixelSizeUm": 0.5}
    with start_log(tmp_path / "cells", summary=summary) as log:
        for frame in frames[: 1 if way == "grown" else 6]:
            log.append(frame.header, frame.image)
        assert log.wait_for_published(log.received)
        monkeypatch.setattr(napari, "current_viewer", lambda: viewer if way == "plugin" else None)
        if way == "plugin":
            monkeypatch.setattr("acqstream.dataset.napari_live.start_timer", lambda _dataset: None)
            viewer.open(tmp_path / "cells", plugin=PLUGIN)
        else:
            show_layers(viewer, tmp_path / "cells")
        (live,) = live_layers(viewer)
        for frame in frames[log.received :]:
            log.append(frame.header, frame.image)
        assert log.wait_for_published(6)
        live.update()
    assert [layer.name for layer in viewer.layers] == ["cells DAPI", "cells Cy5"]
    for layer, color in zip(viewer.layers, (0x4393FF, 0xF03CF4), strict=True):
        picture = shown(layer).astype(float)
        low, high = layer.contrast_limits
        assert ((picture - low) / (high - low)).clip(0, 1).mean() * 255 > 100
        assert 100 <= low < high <= 611
        assert layer.contrast_limits_range == [0, 4095]
        assert np.allclose(
            layer.colormap.map(np.array([1.0]))[0, :3] * 255, [color >> 16, color >> 8 & 255, color & 255]
        )
        assert (tuple(layer.scale), [*map(str, layer.units)]) == (
            (0.25, 0.5, 0.5),
            ["second", "micrometer", "micrometer"],
        )
        assert layer.axis_labels == ("time", "y", "x")


def test_the_sliders_choose_the_frame(viewer: Any) -> None:
    path = GOLDEN / "py_uint16" / "data"
    layer, _ = viewer.open(path, plugin=PLUGIN)
    with acqstream.open(path) as ds:
        for time_step, z in [(1, 2), (0, 1)]:
            viewer.dims.set_current_step((0, 1), (time_step, z))
            assert np.array_equal(shown(layer), ds.read_frame(time=time_step, channel=0, z=z))


@pytest.mark.parametrize("inside", ["NDTiff.index", STACK])
def test_a_file_of_the_dataset_opens_all_of_it(viewer: Any, tmp_path: Path, inside: str) -> None:
    folder = Folder(tmp_path / "data")
    for number in range(3):
        folder.add({"time": number}, image(number))
    (layer,) = viewer.open(folder.path / inside, plugin=PLUGIN)
    assert layer.data.shape == (3, 3, 4)


def test_it_grows_while_a_daemon_writes(viewer: Any, daemon: DaemonProcess) -> None:
    def wait_for(frames: int) -> bool:
        writing, deadline = True, time.monotonic() + WAIT_S
        while sum(len(layer.data.values["time"]) for layer in viewer.layers) < frames:
            assert time.monotonic() < deadline
            writing = live.update()
        return writing

    with acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=16) as run:
        run.put(image_of(0, (16, 16)), time=0, channel="A")
        with acqstream.open(run.path) as ds:
            next(ds.follow(timeout_s=WAIT_S))
        (first,) = viewer.open(run.path, plugin=PLUGIN)
        (live,) = live_layers(viewer)
        assert np.array_equal(shown(first), image_of(0, (16, 16)))
        for number in range(1, 5):
            run.put(image_of(number, (16, 16)), time=number, channel="A")
            assert wait_for(number + 1)
            assert viewer.dims.nsteps[0] == number + 1
            viewer.dims.set_current_step(0, number)
            assert np.array_equal(shown(first), image_of(number, (16, 16)))
        run.put(image_of(5, (16, 16)), time=2, channel="B")
        assert wait_for(10)  # both layers have all times
        _, second = viewer.layers
        assert second.name == "cells B"
        viewer.dims.set_current_step(0, 2)
        assert np.array_equal(shown(second), image_of(5, (16, 16)))
        assert np.array_equal(shown(first), image_of(2, (16, 16)))
        viewer.layers.remove(second)
        run.put(image_of(6, (16, 16)), time=5, channel="B")
        wait_for(6)
        assert list(viewer.layers) == [first]
    deadline = time.monotonic() + WAIT_S
    while live.update():
        assert time.monotonic() < deadline
    assert not live_layers(viewer)


@pytest.mark.parametrize("suffix", [".n5", ".wkw"])
def test_a_mirror_grows_while_a_daemon_writes(viewer: Any, daemon: DaemonProcess, suffix: str) -> None:
    def update_until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline
            live.update()

    with acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=16, mirrors=["n5", "wkw"]) as run:
        for number in range(2):
            run.put(image_of(number, (16, 16)), time=0, channel="AB"[number], z=0)
        mirror = Path(run.path + suffix)
        deadline = time.monotonic() + WAIT_S
        for number in range(2, 4):  # what comes later announces the first time
            run.put(image_of(number, (16, 16)), time=1, channel="AB"[number - 2], z=0)
        while not (mirror.is_dir() and has_items(mirror)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        viewer.open(mirror, plugin=PLUGIN)
        (live,) = live_layers(viewer)
        for number in range(4, 10):
            run.put(image_of(number, (16, 16)), time=number // 2, channel="AB"[number % 2], z=0)
            update_until(lambda: run.progress.published > number)  # noqa: B023
        update_until(lambda: len(viewer.layers[0].data.values["time"]) > 2)
    update_until(lambda: len(viewer.layers[0].data.values["time"]) == 5 and not live.update())
    for number in range(10):
        viewer.dims.set_current_step(0, number // 2)
        assert np.array_equal(shown(viewer.layers[number % 2]), image_of(number, (16, 16)))
    assert not live_layers(viewer)


def has_items(path: Path) -> bool:
    try:
        with acqstream.open(path) as ds:
            return ds.levels[0].item_count > 0
    except acqstream.DatasetError:  # it is just being made
        return False


def test_the_time_follows_what_is_complete_until_it_is_moved(viewer: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data", {"z-step_um": 2.0, "PixelSizeUm": 1.0})
    for z in (3, 4):
        folder.add({"time": 0, "z": z}, image(z))
    show_layers(viewer, folder.path)
    (layer,) = viewer.layers
    live = LiveLayers(viewer, layer.metadata["acqstream"].dataset, follow=True)
    viewer.dims.set_current_step(1, 1)
    assert np.array_equal(shown(layer), image(4))
    assert viewer.text_overlay.visible
    assert viewer.text_overlay.text == "finished, newest frame: time 0"
    folder.add({"time": 1, "z": 3}, image(9))
    live.update()
    assert np.array_equal(shown(layer), image(4))  # the other plane of time 1 is not there
    folder.add({"time": 1, "z": 4}, image(10))
    live.update()
    assert np.array_equal(shown(layer), image(10))
    viewer.dims.set_current_step(1, 0)
    folder.add({"time": 2, "z": 3}, image(11))
    folder.add({"time": 2, "z": 4}, image(12))
    live.update()
    assert np.array_equal(shown(layer), image(11))  # in the plane where it was put by hand
    viewer.dims.set_current_step(0, 0)
    folder.add({"time": 3, "z": 3}, image(13))
    folder.add({"time": 4, "z": 3}, image(14))
    live.update()
    assert np.array_equal(shown(layer), image(3))  # where it was put by hand
    assert viewer.text_overlay.text.startswith("not following: the slider was moved; press F")
    press_f = next(call for key, call in viewer.keymap.items() if str(key) == "F")
    press_f(viewer)
    assert np.array_equal(shown(layer), image(13))  # time 4 is there, so nothing more of 3 is waited for
    press_f(viewer)
    folder.add({"time": 4, "z": 4}, image(15))
    live.update()
    assert np.array_equal(shown(layer), image(13))
    assert viewer.text_overlay.text.startswith("not following; press F")


@pytest.mark.parametrize("frames_per_s", [5, 30])
def test_a_growing_run_is_followed_without_a_black_picture(viewer: Any, tmp_path: Path, frames_per_s: int) -> None:
    """What the layers show after each turn of the window's timer; z stays, and complete times come soon."""
    with start_log(tmp_path / "cells", memory_bytes=2**24) as log, GrowingRun(log, frames_per_s) as run:
        run.wait_for_time(1)
        show_layers(viewer, tmp_path / "cells")
        live = LiveLayers(viewer, viewer.layers[0].metadata["acqstream"].dataset, follow=True)
        viewer.dims.set_current_step(1, 1)
        seen: set[int] = set()
        while len(seen) < 8:
            expected = run.complete_before(in_time(10.0))
            live.update()
            at, plane = viewer.dims.current_step[:2]
            assert at >= expected
            assert plane == 1
            assert len(viewer.layers) == 2
            for layer in viewer.layers:
                assert set(shown(layer).ravel()) == {picture_value(at, plane)}
            assert viewer.text_overlay.text == f"following: time {at}"
            seen.add(at)
            time.sleep(INTERVAL_MS / 1000)


@pytest.mark.parametrize("follow", [True, False])
def test_an_interval_that_becomes_known_moves_no_slider(viewer: Any, tmp_path: Path, follow: bool) -> None:
    """The third time says how far times are apart: then the slider counts seconds."""
    frames = [dim_frame(number, {"time": number}, elapsed_ms=100 * number) for number in range(3)]
    with start_log(tmp_path / "cells") as log:
        for frame in frames[:2]:
            log.append(frame.header, frame.image)
        assert log.wait_for_published(2)
        show_layers(viewer, tmp_path / "cells")
        (layer,) = viewer.layers
        live = LiveLayers(viewer, layer.metadata["acqstream"].dataset, follow=follow)
        viewer.dims.set_current_step(0, 1)
        assert layer.scale[0] == 1
        log.append(frames[2].header, frames[2].image)
        assert log.wait_for_published(3)
        live.update()
    assert layer.scale[0] == 0.1
    assert np.array_equal(shown(layer), frames[2 if follow else 1].image)


def test_a_running_dataset_is_named_as_followed(viewer: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    (folder.path / "acqstream.json").write_text('{"format": "acqstream", "state": "RUNNING"}')
    for channel in ("A", "B"):
        folder.add({"time": 0, "channel": channel}, image(0))
    folder.add({"time": 1, "channel": "B"}, image(1))
    with acqstream.open(folder.path) as ds:
        for data, keywords, _ in image_layers(ds):
            viewer.add_image(data, **keywords)
        LiveLayers(viewer, ds, follow=True)
        assert viewer.text_overlay.text == "following: time 0"
        assert viewer.dims.current_step[0] == 0  # channel A of time 1 has not come


def test_a_finished_dataset_and_arrays_go_to_their_last_picture(viewer: Any) -> None:
    show_layers(viewer, GOLDEN / "py_uint16" / "data", follow=True)
    with acqstream.open(GOLDEN / "py_uint16" / "data") as ds:
        newest = list(ds.keys())[-1]
        assert ds.newest_key() == newest
        for layer in viewer.layers:
            place = {**newest, "channel": layer.metadata["acqstream"].channel, "z": viewer.dims.current_step[1]}
            assert np.array_equal(shown(layer), ds.read_frame(place))
    viewer.layers.clear()
    show_layers(viewer, N5, follow=True)
    (layer,) = viewer.layers
    with acqstream.open(N5) as ds:
        assert np.array_equal(shown(layer), ds.levels[0].read(12))
    assert "newest frame" in viewer.text_overlay.text


def test_nothing_is_shown_before_the_first_frame(viewer: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    assert viewer.open(folder.path, plugin=PLUGIN) == []
    with acqstream.open(folder.path) as ds:
        live = LiveLayers(viewer, ds)
        folder.add({"time": 0}, image(0))
        live.update()
        (layer,) = viewer.layers
        assert np.array_equal(np.asarray(layer.data), [image(0)])


def test_a_new_axis_makes_a_new_layer_at_the_same_place(viewer: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    folder.add({"time": 0}, image(0))
    viewer.add_image(np.zeros((4, 4)), name="above")
    (first,) = viewer.open(folder.path, plugin=PLUGIN)
    live = LiveLayers(viewer, first.metadata["acqstream"].dataset)
    first.opacity = 0.5
    viewer.layers.move(1, 0)
    folder.add({"time": 1, "z": 4}, image(1))
    live.update()
    layer, above = viewer.layers
    assert (layer.name, layer.opacity, above.name) == ("data", 0.5, "above")
    assert np.array_equal(layer.data[1, 1], image(1))
    assert np.array_equal(layer.data[0, 0], image(0))  # a frame without z counts as 0


def test_a_canvas_that_grows_to_the_left_moves_nothing(viewer: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "tiles", {"GridPixelOverlapX": 0, "GridPixelOverlapY": 0, "PixelSizeUm": 2.0})
    folder.add({"row": 0, "column": 0}, image(1))
    (layer,) = viewer.open(folder.path, plugin=PLUGIN)
    live = LiveLayers(viewer, layer.metadata["acqstream"].dataset)
    folder.add({"row": -1, "column": -1}, image(2))
    live.update()
    assert layer.data.shape == (6, 8)
    assert tuple(layer.translate) == (-6.0, -8.0)
    assert layer.get_value((0.0, 0.0), world=True) == image(1)[0, 0]


def test_foreign_paths_are_left_to_others(tmp_path: Path) -> None:
    from acqstream.dataset.napari_live import get_reader

    (tmp_path / "foreign.tif").write_bytes(b"II*\0" + bytes(100))
    for path in (tmp_path, tmp_path / "foreign.tif", tmp_path / "nothing", "a\0b", "", [str(tmp_path)], []):
        assert get_reader(path) is None
    assert get_reader(str(GOLDEN / "py_uint16" / "data"))


def test_a_lower_level_that_appears_makes_a_pyramid(viewer: Any, tmp_path: Path) -> None:
    summary = {"GridPixelOverlapX": 0, "GridPixelOverlapY": 0, "TiledImageStorage": True}
    full = Folder(tmp_path / "tiles" / "Full resolution", summary)
    for column in range(2):
        full.add({"row": 0, "column": column}, image(column, (4, 4)))
    (layer,) = viewer.open(tmp_path / "tiles", plugin=PLUGIN)
    assert not layer.multiscale
    live = LiveLayers(viewer, layer.metadata["acqstream"].dataset)
    half = Folder(tmp_path / "tiles" / "Downsampled_x2", summary)
    half.add({"row": 0, "column": 0}, image(7, (4, 4)))
    live.update()
    (layer,) = viewer.layers
    assert layer.multiscale
    assert layer.name == "tiles"
    assert layer.data.shapes == ((4, 8), (2, 4))
    assert np.array_equal(np.asarray(layer.data[1]), image(7, (4, 4))[:2])


def test_in_a_window_a_timer_updates_until_the_dataset_is_finished(
    viewer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for Qt: there is none here."""
    timers: list[Any] = []

    class Timer:
        def __init__(self, parent: object) -> None:
            self.running = False
            self.timeout = self
            timers.append(self)

        def connect(self, tick: Any) -> None:
            self.tick = tick

        def start(self, interval_ms: int) -> None:
            self.running = interval_ms > 0

        def stop(self) -> None:
            self.running = False

    parts = {"layers": viewer.layers, "dims": viewer.dims, "add_image": viewer.add_image}
    window = SimpleNamespace(**parts, window=SimpleNamespace(_qt_window=None))
    monkeypatch.setitem(sys.modules, "qtpy.QtCore", SimpleNamespace(QTimer=Timer))
    monkeypatch.setattr(napari, "current_viewer", lambda: window)
    folder = Folder(tmp_path / "data")
    state = folder.path / "acqstream.json"
    state.write_text('{"format": "acqstream", "state": "RUNNING"}')
    folder.add({"time": 0}, image(0))
    (layer,) = viewer.open(folder.path, plugin=PLUGIN)
    (timer,) = timers
    folder.add({"time": 1}, image(1))
    timer.tick()
    assert (layer.data.shape, timer.running) == ((2, 3, 4), True)
    folder.add({"time": 2}, image(2))
    state.write_text('{"format": "acqstream", "state": "COMPLETE" }')
    timer.tick()
    assert (layer.data.shape, timer.running) == ((3, 3, 4), False)
