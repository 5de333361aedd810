from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from acqstream.arrays.level_layout import LevelAxis
from acqstream.export.ome_images import ImageGrid

NAMES = st.lists(st.sampled_from(["time", "t", "channel", "z", "position", "angle"]), unique=True, max_size=5)


def axis(name: str, size: int) -> LevelAxis:
    return LevelAxis(name, range(size), range(size))


@given(NAMES.flatmap(lambda names: st.tuples(*(st.tuples(st.just(name), st.integers(1, 3)) for name in names))))
def test_every_plane_is_in_one_image_once(sizes: tuple[tuple[str, int], ...]) -> None:
    grid = ImageGrid(tuple(axis(name, size) for name, size in sizes))
    planes = [position for image in grid.images() for position in grid.planes(image)]
    assert sorted(planes) == sorted(itertools.product(*(range(size) for _, size in sizes)))
    count = grid.size("T") * grid.size("C") * grid.size("Z")
    assert len(planes) == len(list(grid.images())) * count


def test_planes_come_in_the_order_of_the_roles() -> None:
    grid = ImageGrid((axis("position", 2), axis("z", 2), axis("channel", 2)))
    assert list(grid.images()) == [(0,), (1,)]
    assert list(grid.planes((1,))) == [(1, 0, 0), (1, 1, 0), (1, 0, 1), (1, 1, 1)]  # c, then z
    assert list(grid.planes((1,), "TZC")) == [(1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)]
    assert grid.values((1,)) == {"position": 1}
