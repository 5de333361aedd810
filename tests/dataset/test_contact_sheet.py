"""Contact sheets, read back with Pillow."""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

import acqstream
from acqstream.dataset import contact_sheet
from acqstream.dataset.contact_sheet import MAX_PICTURES, SIDE, choose_pictures, save_contact_sheet
from acqstream.dataset.dataset import MAX_PNG_BYTES, newest_picture, small_array
from acqstream.errors import ConfigError, DatasetError
from tests.formats.n5.n5_samples import samples, write_pyramid
from tests.formats.ndtiff.ndtiff_bytes import GOLDEN, Folder, image


def folder_of(path: Path, frames: int, **more: int) -> Folder:
    folder = Folder(path)
    for time in range(frames):
        folder.add({"time": time, **more}, image(time))
    return folder


def test_frames_are_chosen_evenly_first_and_last_among_them(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "data", 100)
    with acqstream.open(folder.path) as ds:
        pictures = list(choose_pictures(ds))
        times = [picture.key["time"] for picture in pictures]
        assert (len(times), times[0], times[-1]) == (MAX_PICTURES, 0, 99)
        assert set(np.diff(times)) == {4, 5}
        assert np.array_equal(pictures[1].pixels, ds.read_frame(time=times[1]))
    few = folder_of(tmp_path / "few", 3)
    with acqstream.open(few.path) as ds:
        assert [picture.key["time"] for picture in choose_pictures(ds)] == [0, 1, 2]


@pytest.mark.parametrize("order", ["interleaved", "after each other", "uneven"])
def test_every_channel_is_there_with_the_same_times(tmp_path: Path, order: str) -> None:
    names = ["DAPI", "FITC", "Cy5"]
    keys = [(time, name) for time in range(48) for name in names]
    if order == "after each other":
        keys.sort(key=lambda one: names.index(one[1]))
    elif order == "uneven":
        keys = [one for one in keys if one[1] == "DAPI" or one[0] == 7]
    folder = Folder(tmp_path / "data")
    for time, name in keys:
        folder.add({"time": time, "channel": name}, image(time))
    with acqstream.open(folder.path) as ds:
        shown = [picture.key for picture in choose_pictures(ds)]
    times = {name: [key["time"] for key in shown if key["channel"] == name] for name in names}
    assert all(times.values())
    assert len(times["DAPI"]) == MAX_PICTURES // 3
    assert times["Cy5"] == times["FITC"] == ([7] if order == "uneven" else times["DAPI"])


def test_an_array_shows_every_channel(tmp_path: Path) -> None:
    array = samples((3, 50, 8, 8), "uint16")
    write_pyramid(tmp_path / "a.n5", array, ("channel", "z", "y", "x"), levels=1, scale=(1,) * 4, units=("um",) * 4)
    with acqstream.open(tmp_path / "a.n5") as ds:
        keys = [picture.key for picture in choose_pictures(ds)]
    assert [[key["channel"] for key in keys].count(channel) for channel in range(3)] == [8, 8, 8]
    assert (keys[0]["z"], keys[-1]["z"], len({key["z"] for key in keys})) == (0, 49, 8)


@pytest.mark.parametrize(("um", "bar", "text"), [(0.65, 77, "50 \xb5m"), (0.1, 50, "5 \xb5m"), (None, 0, "")])
def test_a_scale_bar_where_the_size_of_a_pixel_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, um: float | None, bar: int, text: str
) -> None:
    """Of a shrunk picture and of a small one: 50 um are 77 pixels of 0.65 um, 5 um are 50 of 0.1 um."""
    texts: list[str] = []
    draw_text = ImageDraw.ImageDraw.text

    def record(self: Any, place: Any, words: str, *rest: Any, **more: Any) -> None:
        texts.append(words)
        draw_text(self, place, words, *rest, **more)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", record)
    for width, factor in ((240, 1), (960, 4)):
        texts.clear()
        folder = Folder(tmp_path / f"{width}", {} if um is None else {"PixelSizeUm": um / factor})
        folder.add({"time": 0}, np.zeros((64 * factor, width), "<u2"))
        with acqstream.open(folder.path) as ds:
            save_contact_sheet(ds, tmp_path / "sheet.png")
        with Image.open(tmp_path / "sheet.png") as sheet:
            below = np.asarray(sheet)[14 + 12 + 64 + 2 + 5, 6 : 6 + 120, 0]  # the bar's row, under the first picture
        assert [one for one in texts if "\xb5" in one] == ([text] if text else [])
        solid = np.flatnonzero(below != 224)
        assert (solid[0] if len(solid) else 120) == bar


def test_a_sheet_shows_the_pictures_side_by_side(tmp_path: Path) -> None:
    """Left black, right in the colour of the channel; a hot pixel does not set the contrast."""
    folder = Folder(tmp_path / "data")
    frame = np.full((300, 600), 1000, "<u2")
    frame[:, 300:] = 1200
    frame[0, 0] = 65535
    for channel in ("a", "\u96ea"):  # the second one is not in the font
        folder.add({"channel": channel}, frame)
    file = tmp_path / "sheet.png"
    with acqstream.open(folder.path) as ds:
        assert save_contact_sheet(ds, file) == 2
    with Image.open(file) as sheet:
        assert sheet.format == "PNG"
        pixels = np.asarray(sheet)
    assert 2 * SIDE < pixels.shape[1] < 3 * SIDE
    row = pixels[60]
    first = row[6 : 6 + SIDE, 0]
    assert set(first[: SIDE // 2 - 1]) == {0}
    assert set(first[SIDE // 2 + 1 :]) <= {254, 255}
    for begin, color in ((6, (255, 255, 255)), (12 + SIDE, (0xF0, 0x3C, 0xF4))):  # of the first two places
        assert np.abs(row[begin : begin + SIDE] - first[:, None] / 255 * color).max() <= 2


def test_a_sheet_has_the_contrast_of_the_display_settings(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    frame = np.repeat(np.array([[150, 300, 350, 600]], "<u2"), 60, axis=1)[[0] * 240]
    folder.add({"channel": "GFP"}, frame)
    (folder.path / "display_settings.txt").write_text('{"GFP": {"Color": -65281, "Min": 100, "Max": 600}}')
    with acqstream.open(folder.path) as ds:
        save_contact_sheet(ds, tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as sheet:
        row = np.asarray(sheet)[60, 6 : 6 + SIDE : 60]
    assert row.tolist() == [[25, 0, 25], [102, 0, 102], [127, 0, 127], [255, 0, 255]]


@pytest.mark.parametrize("name", ["java_pyramid_u16", "java_pyramid_rgb_odd", "java_rgb", "py_string_axes", "py_uint8"])
def test_every_kind_of_dataset(tmp_path: Path, name: str) -> None:
    file = tmp_path / "sheet.png"
    with acqstream.open(GOLDEN / name / "data") as ds:
        assert save_contact_sheet(ds, file) == len(list(choose_pictures(ds)))
    with Image.open(file) as sheet:
        assert np.asarray(sheet).std() > 0


def test_of_tiles_the_whole_canvas_is_shown_from_the_level_that_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contact_sheet, "SIDE", 40)
    with acqstream.open(GOLDEN / "java_pyramid_u16" / "data") as ds:
        pictures = list(choose_pictures(ds))
        assert [picture.key for picture in pictures] == [{"channel": "A"}, {"channel": "B"}]
        y, x = (first // 4 - origin for first, origin in zip(ds.levels[0].origin, ds.levels[2].origin, strict=True))
        for position, picture in enumerate(pictures):
            expected = ds.levels[2].read((position, slice(y, y + 32), slice(x, x + 40)))
            assert np.array_equal(picture.pixels, expected)


def test_a_small_level_that_lacks_planes_is_not_taken(tmp_path: Path) -> None:
    array = samples((4, 600, 600), "uint16")
    write_pyramid(tmp_path / "a.n5", array, ("z", "y", "x"), levels=3, scale=(0.1, 0.1, 0.1), units=("um",) * 3)
    with acqstream.open(tmp_path / "a.n5") as ds:
        assert [level.shape[0] for level in ds.levels] == [4, 2, 1]
        assert [picture.key for picture in choose_pictures(ds)] == [{"z": z} for z in range(4)]
        assert small_array(ds, {}, 100).shape == array.shape


def test_what_cannot_be_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path / "data")
    with acqstream.open(folder.path) as ds:
        with pytest.raises(DatasetError, match="no frame yet"):
            save_contact_sheet(ds, tmp_path / "a.png")
        with pytest.raises(ConfigError, match=r"ends in \.png"):
            save_contact_sheet(ds, folder.path / "NDTiff.index")
        monkeypatch.setitem(sys.modules, "PIL.Image", None)
        with pytest.raises(ConfigError, match=r"pip install .*\[view\]"):
            save_contact_sheet(ds, tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()


def test_a_constant_frame(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    folder.add({}, np.zeros((5, 7), "<u2"))
    with acqstream.open(folder.path) as ds:
        assert save_contact_sheet(ds, tmp_path / "a.PNG") == 1


def test_of_a_canvas_without_levels_some_pixels_are_enough(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "Full resolution", {"TiledImageStorage": True})
    for place in (0, 39):
        folder.add({"row": place, "column": place}, np.full((60, 60), 1 + place, "<u2"))
    file = tmp_path / "sheet.png"
    with acqstream.open(tmp_path) as ds:
        (picture,) = choose_pictures(ds)
        assert picture.pixels.shape == (800, 800)
        assert picture.pixels[[0, -1], [0, -1]].tolist() == [1, 40]
        assert int(np.count_nonzero(picture.pixels)) == 2 * 20**2
        assert save_contact_sheet(ds, file) == 1


def png_of(ds: acqstream.dataset.dataset.Dataset) -> Any:
    head, _, text = newest_picture(ds).partition(",")
    content = base64.b64decode(text, validate=True)
    assert head == "data:image/png;base64"
    assert len(content) <= MAX_PNG_BYTES
    with Image.open(io.BytesIO(content)) as picture:
        picture.load()  # checks the sums of the file
        return np.asarray(picture)


def test_the_newest_frame_is_the_picture_of_a_notebook(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    folder.add({"time": 0}, np.full((6, 8), 77, "<u2"))
    folder.add({"time": 1}, np.arange(48, dtype="<u2").reshape(6, 8))
    with acqstream.open(folder.path) as ds:
        pixels = png_of(ds)
    assert pixels.shape == (6, 8)
    assert (pixels.argmin(), pixels.argmax()) == (0, 47)


@pytest.mark.parametrize("kind", ["<u2", "rgb"])
def test_a_picture_of_noise_stays_small(tmp_path: Path, kind: str) -> None:
    folder = Folder(tmp_path / "data")
    shape = (700, 901, 3) if kind == "rgb" else (700, 901)
    noise = np.random.default_rng(0).integers(0, 255, (700 // 7, 901 // 7 + 1, *shape[2:]))
    noise = noise.repeat(7, 0).repeat(7, 1)[:700, :901]
    folder.add({"time": 0}, noise.astype("u1" if kind == "rgb" else "<u2"))
    with acqstream.open(folder.path) as ds:
        pixels = png_of(ds)
    assert 60 <= max(pixels.shape) <= 192
    assert pixels.std() > 20


@pytest.mark.parametrize("name", ["java_pyramid_u16", "java_pyramid_rgb_odd", "java_rgb", "py_string_axes", "py_uint8"])
def test_every_kind_of_dataset_has_a_card(name: str) -> None:
    with acqstream.open(GOLDEN / name / "data") as ds:
        assert png_of(ds).std() > 0
        card = ds._repr_html_()
    assert card.count("<img") == 1
    assert "no picture" not in card
    assert "uint" in card


def test_a_card_says_why_it_has_no_picture(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "a & b")
    with acqstream.open(folder.path) as ds:
        assert "no picture: " in ds._repr_html_()
        assert "holds no frame yet" in ds._repr_html_()
        folder.add({"time": 0}, image(0))
        ds.refresh()
        card = ds._repr_html_()
        assert "a &amp; b" in card
        assert "a & b" not in card
        assert 'src="data:image/png' in card
        assert "is another dataset now" in ds.html_card("<script>", "an id")
        assert "<script>" not in ds.html_card("<script>")
        for stack in folder.path.glob("*.tif"):
            with stack.open("r+b") as file:
                file.truncate(20)
        assert "no picture: " in ds._repr_html_()
    assert "no picture: " in ds._repr_html_(), "a closed dataset"


def test_an_array_has_a_card(tmp_path: Path) -> None:
    array = samples((4, 600, 600), "float32")
    array[-1, :5] = np.nan
    write_pyramid(tmp_path / "a.n5", array, ("z", "y", "x"), levels=2, scale=(0.1, 0.1, 0.1), units=("um",) * 3)
    with acqstream.open(tmp_path / "a.n5") as ds:
        assert png_of(ds).std() > 0
        assert "4 x 600 x 600, float32, z, y, x" in ds._repr_html_()
        assert ds.receipt is None
