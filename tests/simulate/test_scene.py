"""The scene: windows fit each other, axes matter, and every pixel is the same everywhere."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from acqstream.simulate.axes_counter import parse_axes
from acqstream.simulate.cells import Stain
from acqstream.simulate.pattern import burn_number
from acqstream.simulate.scene import Scene, SceneCamera, SceneIndex, add_noise

SHAPE = (300, 400)
INDICES = st.builds(
    SceneIndex,
    time=st.integers(0, 10**6),
    z=st.integers(0, 9),
    stain=st.sampled_from([None, *Stain]),
    field=st.integers(0, 1000),
    number=st.integers(0, 10**9),
)


@given(
    index=INDICES,
    kind=st.sampled_from([("uint8", None), ("uint16", None), ("uint16", 12)]),
    tail=st.sampled_from([(), (3,)]),
    corner=st.tuples(st.integers(-2000, 2000), st.integers(-2000, 2000)),
    cut=st.tuples(st.integers(0, 150), st.integers(0, 150), st.integers(1, 70), st.integers(1, 90)),
)
def test_windows_are_parts_of_one_picture(index, kind, tail, corner, cut) -> None:
    dtype, bits = kind
    scene = Scene(depth=5)
    top, left = corner
    whole = scene.window(top, left, (220, 240, *tail), dtype, bits=bits, index=index)
    y, x, height, width = cut
    part = scene.window(top + y, left + x, (height, width, *tail), dtype, bits=bits, index=index)
    assert np.array_equal(whole[y : y + height, x : x + width], part)
    assert part.dtype == dtype
    assert whole.max() <= 2 ** (bits or 8 * part.itemsize) - 1


def test_every_computer_draws_the_same_pixels() -> None:
    """Else a dataset could not be compared with the scene elsewhere. The sums are those of the first computer."""
    camera = SceneCamera(parse_axes("time=9,channel=DAPI|FITC|TRITC|BF,z=3"))
    sums = [
        hashlib.sha256(camera.frame(number, (97, 203), "uint16", 12).tobytes()).hexdigest()[:12]
        for number in (0, 40, 80, 107)
    ]
    assert sums == ["cdf6c8fecc9c", "f2f8fb335cf4", "be4c429d96be", "a21e75d20cc8"]


def image(scene: Scene, index: SceneIndex) -> NDArray[np.float64]:
    return scene.window(0, 0, (600, 600), "uint16", bits=12, index=index).astype(float)


def sharpness(picture: NDArray[np.float64]) -> float:
    """Of edges: the variance of differences of neighbours eight pixels wide, where noise counts little."""
    smooth = picture.reshape(150, 4, 150, 4).mean(axis=(1, 3))
    return float(np.diff(smooth, axis=1).var())


def test_cells_are_in_focus_in_their_own_plane() -> None:
    scene = Scene(depth=5)
    planes = [sharpness(image(scene, SceneIndex(stain=Stain.NUCLEI, z=z))) for z in (2, 12)]
    assert planes[0] > 3 * planes[1]


def count_of_nuclei(picture: NDArray[np.float64]) -> int:
    """Regions brighter than the background, by flooding: written for this test alone."""
    mask = picture > 900
    seen = np.zeros_like(mask)
    count = 0
    for start in zip(*np.nonzero(mask), strict=True):
        if seen[start]:
            continue
        count += 1
        todo = [start]
        seen[start] = True
        while todo:
            y, x = todo.pop()
            for place in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
                inside = 0 <= place[0] < mask.shape[0] and 0 <= place[1] < mask.shape[1]
                if inside and mask[place] and not seen[place]:
                    seen[place] = True
                    todo.append(place)
    return count


def test_cells_move_and_divide() -> None:
    scene = Scene()
    pictures = [image(scene, SceneIndex(stain=Stain.NUCLEI, time=time)) for time in (0, 3, 60)]
    counts = [count_of_nuclei(picture) for picture in pictures]
    assert all(25 < count < 130 for count in counts)
    assert len(set(counts)) > 1  # some have divided meanwhile
    bright = [picture > 700 for picture in pictures]
    overlap = [(bright[0] & other).sum() / bright[0].sum() for other in bright[1:]]
    assert 0.5 < overlap[0] < 0.999  # a little further
    assert overlap[1] < 0.5


def test_channels_show_different_parts_of_the_same_cells() -> None:
    scene = Scene()
    pictures = [image(scene, SceneIndex(stain=stain)) for stain in Stain]
    for number, one in enumerate(pictures):
        for other in pictures[:number]:
            assert np.corrcoef(one.ravel(), other.ravel())[0, 1] < 0.6
    nuclei, membrane = (picture > picture.min() + 700 for picture in pictures[:2])
    assert not (nuclei & membrane).sum() > 0.1 * nuclei.sum()  # the outline is around the nucleus
    assert np.median(pictures[Stain.TRANSMITTED]) > 1000  # dark cells on a bright ground


def test_indices_of_axes() -> None:
    camera = SceneCamera(parse_axes("position=2,time=3,channel=BF|DAPI|mystery,z=4"))
    assert camera.scene.depth == 4
    assert camera.index(0) == SceneIndex(stain=Stain.TRANSMITTED)
    number = ((1 * 3 + 2) * 3 + 1) * 4 + 3
    assert camera.index(number) == SceneIndex(time=2, z=3, stain=Stain.NUCLEI, field=1, number=number)
    assert camera.index(8).stain is Stain(2)  # of its index, as its name says nothing
    assert SceneCamera(parse_axes("time")).index(7) == SceneIndex(time=7, number=7)
    first, second = (SceneCamera(parse_axes("position=A|B")).frame(number, SHAPE, "uint16") for number in (0, 1))
    assert np.corrcoef(first.ravel(), second.ravel())[0, 1] < 0.2


def test_noise_has_its_strength_and_no_pattern() -> None:
    counts = np.full((700, 1500), 200, np.float32)
    add_noise(counts, -1300, 77, seed=1, picture=3)
    assert abs(counts.mean() - 200) < 0.2
    assert abs(counts.std() - np.sqrt(200 * 2 + 16)) < 0.2
    again = np.full((700, 1500), 200, np.float32)
    add_noise(again, -1300, 77, seed=1, picture=4)
    assert abs(np.corrcoef(counts.ravel(), again.ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(counts[:, :-1].ravel(), counts[:, 1:].ravel())[0, 1]) < 0.02


@pytest.mark.parametrize("number", [0, 9, 1234567890])
@pytest.mark.parametrize("tail", [(), (3,)])
def test_a_burned_number_can_be_read(number: int, tail: tuple[int, ...]) -> None:
    picture = np.full((100, 200, *tail), 7, np.uint16)
    burn_number(picture, number, 4095)
    box = picture[:9, : 6 * len(str(number)) + 1]
    assert set(np.unique(box)) == {0, 4095}
    outside = np.ones(picture.shape[:2], bool)
    outside[:9, : 6 * len(str(number)) + 1] = False
    assert (picture[outside] == 7).all()
    pixels = box[1:8].reshape(7, box.shape[1], -1)[..., 0] > 0
    read = "".join(digit_in(pixels[:, 6 * place + 1 : 6 * place + 6]) for place in range(len(str(number))))
    assert read == str(number)
    burn_number(np.zeros((3, 4), np.uint8), number, 255)  # too small for it, and no error


# The digits as they are drawn, side by side.
DRAWN = """
.###. ..#.. .###. ##### ...#. ##### ..##. ##### .###. .###.
#...# .##.. #...# ...#. ..##. #.... .#... ....# #...# #...#
#..## ..#.. ....# ..#.. .#.#. ####. #.... ...#. #...# #...#
#.#.# ..#.. ...#. ...#. #..#. ....# ####. ..#.. .###. .####
##..# ..#.. ..#.. ....# ##### ....# #...# .#... #...# ....#
#...# ..#.. .#... #...# ...#. #...# #...# .#... #...# ...#.
.###. .###. ##### .###. ...#. .###. .###. .#... .###. .##..
"""


def digit_in(pixels: NDArray[np.bool_]) -> str:
    """The digit that the pixels show, shape (7, 5)."""
    rows = [line.split() for line in DRAWN.split("\n")[1:-1]]
    for digit in range(10):
        if np.array_equal(pixels, [[mark == "#" for mark in row[digit]] for row in rows]):
            return str(digit)
    return "?"
