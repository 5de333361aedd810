"""The compiled kernels against plain rules, bit for bit, and against wrong calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acqstream import grid
from acqstream.grid import kernels
from acqstream.grid.block_mean import BlockMean
from acqstream.grid.reduction import Halving
from tests.grid.kernel_arrays import MAX, PIXELS, as_image, laid_arrays, means, place_shapes, place_sizes, set_image

needs_compiled = pytest.mark.skipif(kernels.compiled is None, reason=f"no compiled kernels: {kernels.reason}")
dtypes = st.sampled_from(PIXELS)
sizes = st.integers(0, 9)


@needs_compiled
@settings(max_examples=300)
@given(data=st.data(), axes=st.integers(1, 3), target=dtypes, is_past_cache=st.booleans())
def test_put_writes_the_box_and_nothing_else(data: Any, axes: int, target: str, is_past_cache: bool) -> None:
    place = data.draw(laid_arrays(data.draw(place_shapes(axes)), target))
    begin = [data.draw(st.integers(0, size)) for size in place_sizes(place.array.shape)]
    shape = [
        data.draw(st.integers(0, size - at)) for at, size in zip(begin, place_sizes(place.array.shape), strict=True)
    ]
    source = data.draw(dtypes.filter(lambda name: np.dtype(name).itemsize == place.array.itemsize))
    pixels = data.draw(laid_arrays(shape, source))
    wanted = as_image(place.array)
    wanted[tuple(slice(at, at + size) for at, size in zip(begin, shape, strict=True))] = pixels.array
    before = place.memory.copy()
    assert kernels.put(place.array, pixels.array, begin, is_past_cache=is_past_cache)
    done = place.memory.copy()
    place.memory[:] = before
    set_image(place.array, wanted)
    assert np.array_equal(done, place.memory)


@needs_compiled
@pytest.mark.parametrize("target", PIXELS)
@pytest.mark.parametrize("block", [(32, 32), (64, 128), (7, 33)])
@pytest.mark.parametrize("begin", [(0, 0), (5, 1), (33, 64)])
@pytest.mark.parametrize("head", [0, 16, 8])
def test_large_planes_go_past_the_cache(target: str, block: tuple[int, int], begin: tuple[int, int], head: int) -> None:
    """Lines of the cache, bands of rows, and what is left of both."""
    shape = (3, 2, 2, 2, *block)
    size = int(np.prod(shape)) * np.dtype(target).itemsize
    memory = np.zeros(size + 128, np.uint8)
    place = memory[-memory.ctypes.data % 64 + head :][:size].view(target).reshape(shape)
    height, width = place_sizes(shape)
    dtype = place.dtype.newbyteorder("=")
    pixels = np.random.default_rng(8).integers(
        1, MAX[dtype.itemsize], (height - begin[0] - 3, width - begin[1] - 1), dtype
    )
    assert kernels.put(place, pixels, begin, is_past_cache=True)
    wanted = np.zeros((height, width), pixels.dtype)
    wanted[begin[0] : height - 3, begin[1] : width - 1] = pixels
    assert np.array_equal(as_image(place), wanted)


@needs_compiled
@settings(max_examples=200)
@given(data=st.data(), axes=st.integers(1, 3), name=dtypes, shape=st.tuples(sizes, sizes, sizes))
def test_equal_finds_every_difference(data: Any, axes: int, name: str, shape: tuple[int, ...]) -> None:
    one = data.draw(laid_arrays(shape[:axes], name)).array
    other = data.draw(
        laid_arrays(shape[:axes], data.draw(dtypes.filter(lambda dtype: np.dtype(dtype).itemsize == one.itemsize)))
    ).array
    other[...] = one
    assert kernels.equal(one, other) is True
    if one.size:
        place = tuple(data.draw(st.integers(0, size - 1)) for size in one.shape)
        other[place] ^= other.dtype.type(1 << data.draw(st.integers(0, 8 * one.itemsize - 1)))
        assert kernels.equal(one, other) is False


@needs_compiled
@settings(max_examples=300)
@given(data=st.data(), name=dtypes, shape=st.tuples(sizes, sizes), is_half_up=st.booleans(), is_rounded=st.booleans())
def test_halve_follows_the_rule(
    data: Any, name: str, shape: tuple[int, int], is_half_up: bool, is_rounded: bool
) -> None:
    samples = data.draw(st.sampled_from([(), (1,), (2,), (3,), (4,), (5,)]))
    source = data.draw(laid_arrays((*shape, *samples), name)).array
    small = [(size + is_rounded) // 2 for size in shape]
    target = data.draw(
        laid_arrays((*small, *samples), data.draw(dtypes.filter(lambda one: np.dtype(one).itemsize == source.itemsize)))
    )
    wanted = means([source], target.array.shape, (2, 2, 1)[: source.ndim], is_half_up=is_half_up)
    before = target.memory.copy()
    assert kernels.halve(source, target.array, is_half_up=is_half_up)
    done = target.memory.copy()
    target.memory[:] = before
    target.array[...] = wanted
    assert np.array_equal(done, target.memory)


@needs_compiled
@settings(max_examples=300)
@given(data=st.data(), axes=st.integers(1, 3), name=dtypes, depth=st.sampled_from([1, 2, 4, 8]))
def test_reduce_writes_the_means_and_nothing_else(data: Any, axes: int, name: str, depth: int) -> None:
    plane = data.draw(laid_arrays((depth, *data.draw(place_shapes(axes))), name)).array
    target = data.draw(
        laid_arrays(
            data.draw(place_shapes(axes)),
            data.draw(dtypes.filter(lambda one: np.dtype(one).itemsize == plane.itemsize)),
        )
    )
    limits = [data.draw(st.integers(0, size)) for size in place_sizes(plane.shape[1:])]
    ratios = [data.draw(st.integers(1, 2)) for _ in limits]
    begin = [data.draw(st.integers(0, size)) for size in place_sizes(target.array.shape)]
    shape = [
        data.draw(st.integers(0, min(size - at, -(-limit // ratio))))
        for size, at, limit, ratio in zip(place_sizes(target.array.shape), begin, limits, ratios, strict=True)
    ]
    images = [as_image(one)[tuple(map(slice, limits))] for one in plane]
    wanted = as_image(target.array)
    wanted[tuple(slice(at, at + size) for at, size in zip(begin, shape, strict=True))] = means(
        images, shape, ratios, is_half_up=True
    )
    before = target.memory.copy()
    done_it = kernels.reduce(list(plane), limits, target.array, begin, shape, ratios=ratios, is_past_cache=axes == 2)
    assert done_it
    done = target.memory.copy()
    target.memory[:] = before
    set_image(target.array, wanted)
    assert np.array_equal(done, target.memory)


@needs_compiled
@pytest.mark.parametrize("name", ["u1", "<u2", ">u2"])
@pytest.mark.parametrize("depth", [1, 2, 4, 8])
@pytest.mark.parametrize("block", [(4, 6), (32, 32), (2, 64)])
def test_reduce_of_large_planes(name: str, depth: int, block: tuple[int, int]) -> None:
    """Rows in bands, neighbours in pairs, and a last row and column without a neighbour; also the largest sums."""
    blocks = (-(-77 // block[0]), -(-131 // block[1]))
    shape = (depth, 1, 1, *blocks, *block, np.dtype(name).itemsize)
    planes = np.random.default_rng(3).integers(0, 256, shape, np.uint8)
    planes = planes.view(name)[..., 0]
    planes[:, :, :, 0] = np.iinfo(name).max
    target = np.zeros((1, 1, 3, 3, 16, 32), name)
    assert kernels.reduce(
        list(planes), (77, 131), target, (0, 0), (39, 66), ratios=(2, 2), is_past_cache=block == (32, 32)
    )
    images = [as_image(plane)[:77, :131] for plane in planes]
    assert np.array_equal(as_image(target)[:39, :66], means(images, (39, 66), (2, 2), is_half_up=True))
    assert not as_image(target)[39:].any()
    assert not as_image(target)[:, 66:].any()


@needs_compiled
@pytest.mark.parametrize("orders", ["<>", "><"])
def test_reduce_of_planes_of_different_byte_orders(orders: str) -> None:
    planes = [np.arange(24, dtype=f"{order}u2").reshape(1, 1, 1, 1, 4, 6) for order in orders]
    target = np.zeros((1, 1, 1, 1, 2, 3), np.uint16)
    assert kernels.reduce(planes, (4, 6), target, (0, 0), (2, 3), ratios=(2, 2), is_past_cache=False)
    expected = means([as_image(plane) for plane in planes], (2, 3), (2, 2), is_half_up=True)
    assert np.array_equal(as_image(target), expected)


IMAGE = np.zeros((4, 6), np.uint16)
PLACE = np.zeros((1, 1, 1, 1, 4, 6), np.uint16)
TARGET = np.zeros((2, 3), np.uint16)
SHIFTED = np.zeros(40, np.uint16)
READ_ONLY = np.zeros((1, 1, 1, 1, 4, 6), np.uint16)
READ_ONLY.flags.writeable = False

WRONG_CALLS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "a box beyond the place": ("put", (PLACE, IMAGE, (1, 0), False)),
    "a box far beyond the place": ("put", (PLACE, IMAGE, (sys.maxsize, 0), False)),
    "a negative begin": ("put", (PLACE, IMAGE, (-1, 0), False)),
    "a begin of another length": ("put", (PLACE, IMAGE, (0,), False)),
    "a begin that is a list": ("put", (PLACE, IMAGE, [0, 0], False)),
    "a begin of floats": ("put", (PLACE, IMAGE, (0.0, 0), False)),
    "a begin beyond 64 bits": ("put", (PLACE, IMAGE, (2**70, 0), False)),
    "an image as a place": ("put", (IMAGE, TARGET, (0, 0), False)),
    "a place of too many dimensions": ("put", (PLACE[None, None, None], IMAGE, (0, 0), False)),
    "pixels without axes": ("put", (PLACE, np.uint16(5), (), False)),
    "pixels of another size": ("put", (PLACE, IMAGE.astype("u1"), (0, 0), False)),
    "pixels that are floats": ("put", (PLACE, IMAGE.astype("f4"), (0, 0), False)),
    "pixels with a sign": ("put", (PLACE.astype("i2"), IMAGE.astype("i2"), (0, 0), False)),
    "pixels of 32 bits": ("put", (PLACE.astype("u4"), IMAGE.astype("u4"), (0, 0), False)),
    "pixels that are records": ("put", (PLACE, IMAGE.view([("a", "u2")]), (0, 0), False)),
    "a place that cannot be written": ("put", (READ_ONLY, IMAGE, (0, 0), False)),
    "a source inside its target": (
        "put",
        (SHIFTED[:24].reshape(PLACE.shape), SHIFTED[3:27].reshape(4, 6), (0, 0), False),
    ),
    "arrays of two shapes": ("equal", (IMAGE, IMAGE[:3])),
    "an array that ends before the other one": ("equal", (IMAGE[:3], IMAGE)),
    "arrays of two dimensions and one": ("equal", (IMAGE, IMAGE[0])),
    "arrays of two types": ("equal", (IMAGE, IMAGE.astype("u1"))),
    "arrays of floats": ("equal", (IMAGE.astype("f4"), IMAGE.astype("f4"))),
    "arrays of four axes": ("equal", (PLACE[0, 0], PLACE[0, 0])),
    "more pixels than blocks": ("halve", (IMAGE, np.zeros((3, 3), np.uint16), False)),
    "blocks of nothing": ("halve", (IMAGE[:0], TARGET, False)),
    "a block of nothing": ("halve", (IMAGE[:0], TARGET[:1], False)),
    "a line": ("halve", (IMAGE[0], TARGET[0], False)),
    "fewer samples": ("halve", (np.zeros((4, 4, 4), "u1"), np.zeros((2, 2, 3), "u1"), False)),
    "more samples": ("halve", (np.zeros((4, 4, 3), "u1"), np.zeros((2, 2, 4), "u1"), False)),
    "a target of another type": ("halve", (IMAGE, TARGET.astype("u1"), False)),
    "a target in its source": ("halve", (IMAGE, IMAGE[:2, :3], False)),
    "no planes": ("reduce", ((), (4, 6), PLACE, (0, 0), (2, 3), (2, 2), False)),
    "three planes": ("reduce", ((PLACE.copy(),) * 3, (4, 6), PLACE, (0, 0), (2, 3), (2, 2), False)),
    "planes of two shapes": (
        "reduce",
        ((PLACE.copy(), np.zeros((1, 1, 1, 1, 6, 6), "u2")), (4, 6), PLACE, (0, 0), (2, 3), (2, 2), False),
    ),
    "a plane that ends before the first one": (
        "reduce",
        ((PLACE.copy(), PLACE.copy()[..., :5]), (4, 6), PLACE, (0, 0), (2, 3), (2, 2), False),
    ),
    "planes of two layouts": (
        "reduce",
        (
            (PLACE.copy(), np.zeros((1, 1, 1, 1, 6, 4), "u2").swapaxes(4, 5)),
            (4, 6),
            PLACE,
            (0, 0),
            (2, 3),
            (2, 2),
            False,
        ),
    ),
    "limits beyond the plane": ("reduce", ((PLACE.copy(),), (5, 6), PLACE, (0, 0), (3, 3), (2, 2), False)),
    "means of nothing": ("reduce", ((PLACE.copy(),), (4, 4), PLACE, (0, 0), (2, 3), (2, 2), False)),
    "means beyond the target": ("reduce", ((PLACE.copy(),), (4, 6), PLACE, (3, 0), (2, 3), (2, 2), False)),
    "a ratio of 0": ("reduce", ((PLACE.copy(),), (4, 6), PLACE, (0, 0), (2, 3), (0, 2), False)),
    "a ratio of 3": ("reduce", ((PLACE.copy(),), (4, 6), PLACE, (0, 0), (2, 2), (2, 3), False)),
    "limits of no axis": ("reduce", ((PLACE.copy(),), (), PLACE, (), (), (), False)),
    "limits of four axes": ("reduce", ((PLACE.copy(),), (1,) * 4, PLACE, (0,) * 4, (1,) * 4, (1,) * 4, False)),
}


@needs_compiled
@pytest.mark.parametrize("name", WRONG_CALLS)
def test_a_wrong_call_is_refused_and_writes_nothing(name: str) -> None:
    function, arguments = WRONG_CALLS[name]
    before = [one.copy() for one in arguments if isinstance(one, np.ndarray)]
    with pytest.raises(ValueError, match=r"expected|different|overlap|read-only"):
        getattr(kernels.compiled, function)(*arguments)
    assert all(map(np.array_equal, before, [one for one in arguments if isinstance(one, np.ndarray)]))


@needs_compiled
def test_what_is_no_array_is_refused() -> None:
    assert kernels.compiled is not None
    with pytest.raises(TypeError, match="bytes-like"):
        kernels.compiled.equal("text", IMAGE)
    with pytest.raises(TypeError, match="argument"):
        kernels.compiled.put(PLACE)


def test_numpy_does_what_the_kernels_leave() -> None:
    """Each function reports whether it has done the work."""
    floats, place = IMAGE.astype("f4"), PLACE.astype("f4")
    assert not kernels.put(place, floats, (0, 0), is_past_cache=False)
    assert not kernels.put(PLACE[0, 0], IMAGE[None, None], (0,) * 4, is_past_cache=False)
    assert not kernels.put(SHIFTED[:24].reshape(PLACE.shape), SHIFTED[3:27].reshape(4, 6), (0, 0), is_past_cache=False)
    assert kernels.equal(floats, floats) is None
    assert kernels.equal(IMAGE, IMAGE[:3]) is None
    assert kernels.equal(IMAGE[0, 0], IMAGE[0, 0]) is None
    assert not kernels.halve(floats, floats[:2, :3].copy(), is_half_up=True)
    assert not kernels.halve(IMAGE, IMAGE[:2, :3], is_half_up=True)
    assert not kernels.reduce([PLACE.copy()] * 3, (4, 6), PLACE, (0, 0), (2, 3), ratios=(2, 2), is_past_cache=False)
    assert not kernels.reduce([PLACE.copy()], (4, 6), PLACE, (0, 0), (1, 1), ratios=(4, 4), is_past_cache=False)
    assert not kernels.reduce([PLACE], (4, 6), PLACE, (0, 0), (2, 3), ratios=(2, 2), is_past_cache=False)


@needs_compiled
@given(data=st.data(), name=st.sampled_from(["u1", "<u2"]), shape=st.tuples(st.integers(1, 9), st.integers(1, 9)))
def test_grid_gives_the_same_bits_by_either_way(data: Any, name: str, shape: tuple[int, int]) -> None:
    source = data.draw(laid_arrays(shape, name)).array
    color = data.draw(laid_arrays((*shape, 3), "u1")).array
    small = [size // 2 or 1 for size in shape]

    def everything() -> list[np.ndarray]:
        found = [BlockMean().mean([source], (2, 2), small)]
        for image in (source, color):
            found.append(np.empty([(size + 1) // 2 for size in shape] + list(image.shape[2:]), image.dtype))
            Halving(image.dtype).halve(image, found[-1])
        return found

    compiled = everything()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "compiled", None)
        assert all(map(np.array_equal, compiled, everything()))


def _forget(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(sys.modules, "acqstream.grid._kernels", None)
    patch.delattr(grid, "_kernels", raising=False)


CHOICES: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "by the environment": (lambda patch: patch.setenv("ACQSTREAM_KERNELS", "0"), "ACQSTREAM_KERNELS=0"),
    "for want of the module": (_forget, "the compiled kernels are missing"),
    "for another interface": (
        lambda patch: patch.setattr(grid, "_kernels", SimpleNamespace(INTERFACE=0), raising=False),
        "interface 0, expected 1",
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_numpy_is_chosen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare, reason = CHOICES[name]
    monkeypatch.delenv("ACQSTREAM_KERNELS", raising=False)
    prepare(monkeypatch)
    module, why = kernels._choose()
    assert module is None
    assert reason in why
    monkeypatch.setattr(kernels, "compiled", module)
    assert kernels.kernels_name() == "numpy"
    assert not kernels.halve(IMAGE, TARGET, is_half_up=True)


def test_the_compiled_ones_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACQSTREAM_KERNELS", raising=False)
    module = SimpleNamespace(INTERFACE=kernels.INTERFACE)
    monkeypatch.setattr(grid, "_kernels", module, raising=False)
    assert list(kernels._choose()) == [module, ""]
    monkeypatch.setattr(kernels, "compiled", module)
    assert kernels.kernels_name() == "compiled"
