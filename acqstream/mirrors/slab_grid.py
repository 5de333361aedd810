"""Cuts a level into slabs: the chunks that share their frames; a mosaic's along y and x too. Pure geometry.

A slab has all of y, x and c, and is as deep along the other axes as a chunk; deeper if the next level averages more
positions than a chunk has, so that it can be reduced by itself, or if chunks make longer runs together. A plane is the
part of a slab that one frame fills.

The picture of a mosaic is cut along y and x too (`Cut`). There several tiles fill the pieces of one plane, and
a tile fills pieces of several slabs. A key then ends with the slab's place along y and x, and a place with the row and
column of the tile.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from acqstream.arrays import array_plan
from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.description.image_positions import IMAGE_AXES
from acqstream.grid.block_sizes import reduced_size
from acqstream.model.axes import PICTURE_AXES, TILE_AXES, TIME

_ENDLESS = 2**62  # items


class TileSpan(NamedTuple):
    """Where a tile meets a slab along one side.

    tile is its row or column, slab the number of the slab, piece that of the tile among those of the slab. The pixels
    are [first, stop) in the slab and begin at `inside` in the tile.
    """

    tile: int
    slab: int
    piece: int
    first: int
    stop: int
    inside: int


@dataclass(frozen=True, slots=True)
class Cut:
    """One side of a picture of `size` items, in slabs of `side` items and tiles of `tile` items, both from item 0.

    size 0 is not known: the picture has no end. Then `slabs` and `tiles` are 0.
    """

    size: int
    side: int
    tile: int

    @property
    def slabs(self) -> int:
        return -(-self.size // self.side)

    @property
    def tiles(self) -> int:
        return -(-self.size // self.tile)

    @property
    def most(self) -> int:
        """Number of tiles that meet one slab, at most."""
        return _most_met(self.side, self.tile)

    @property
    def most_slabs(self) -> int:
        """Number of slabs that one tile meets, at most."""
        met = _most_met(self.tile, self.side)
        return min(self.slabs, met) if self.size else met

    @property
    def end(self) -> int:
        """The item after the last one of the picture."""
        return self.size or _ENDLESS

    def of_piece(self, tile: int) -> Iterator[TileSpan]:
        """The slabs that a tile meets; none beyond the picture."""
        first, stop = tile * self.tile, min((tile + 1) * self.tile, self.end)
        for slab in range(first // self.side, -(-stop // self.side) if stop > first else 0):
            yield self._span(tile, slab)

    def in_slab(self, slab: int, end: int = 0) -> Iterator[TileSpan]:
        """The tiles that meet a slab before item `end`, or before the end of the picture."""
        first, stop = slab * self.side, min((slab + 1) * self.side, end or self.end)
        for tile in range(first // self.tile, -(-stop // self.tile) if stop > first else 0):
            yield self._span(tile, slab)

    def inside(self, slab: int) -> int:
        """Number of items of a slab that lie in the picture."""
        return max(0, min(self.side, self.end - slab * self.side))

    def _span(self, tile: int, slab: int) -> TileSpan:
        begin = slab * self.side
        first = max(tile * self.tile, begin)
        stop = min((tile + 1) * self.tile, begin + self.side, self.end)
        return TileSpan(tile, slab, tile - begin // self.tile, first - begin, stop - begin, first - tile * self.tile)


def _most_met(length: int, other: int) -> int:
    """Number of pieces of `other` items that `length` items meet at most, wherever they begin on a multiple of it."""
    return length // other if not length % other else (length - 1) // other + 2


_TRIMMED = frozenset({"time", "z"})  # a run that ended early has less of these; the others keep what was declared


class Piece(NamedTuple):
    """What a frame, or a slab of the level above, fills of one plane of a slab.

    bit is its number in `Slab.filled`; place is that of the frame; spans are along y and x, () for all of the plane.
    """

    key: Position
    bit: int
    plane: int
    place: Position
    spans: tuple[TileSpan, ...]


@dataclass(frozen=True)
class SlabGrid:
    """The slabs of one level. outer and picture are indices of its axes; step is the depth of a slab along the outer
    axes; ratios are the numbers of items that are averaged into one of the next level, per axis (1 on the last level).
    cuts are those along y and x, () where a slab has all of both.
    """

    spec: ArraySpec
    outer: tuple[int, ...]
    picture: tuple[int, ...]
    step: tuple[int, ...]
    ratios: tuple[int, ...]
    cuts: tuple[Cut, ...] = ()

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Number of chunks of a slab along each axis."""
        found = list(self.spec.grid_shape)
        for axis, step in zip(self.outer, self.step, strict=True):
            found[axis] = step // self.spec.chunk_shape[axis]
        for axis, cut in zip(self.cut_axes, self.cuts, strict=True):
            found[axis] = cut.side // self.spec.chunk_shape[axis]
        return tuple(found)

    @property
    def cut_axes(self) -> tuple[int, ...]:
        """Indices of y and x among the level's axes; () where a slab has all of both."""
        return _sides(self.spec) if self.cuts else ()

    @property
    def slab_bytes(self) -> int:
        return math.prod(self.counts) * self.spec.chunk_bytes

    @property
    def layers(self) -> int:
        """Number of chunks of a slab along all outer axes; planes of a layer share these chunks."""
        return math.prod(self.counts[axis] for axis in self.outer)

    @property
    def layer_bytes(self) -> int:
        return self.slab_bytes // self.layers

    def layer_of(self, plane: int) -> int:
        """The layer of a plane."""
        places = zip(self.outer, self.local(plane), strict=True)
        return self.chunk_layer([at // self.spec.chunk_shape[axis] for axis, at in places])

    def chunk_layer(self, outer: Sequence[int]) -> int:
        """The layer of a chunk, by its position in the slab along the outer axes."""
        return _number(outer, [self.counts[axis] for axis in self.outer])

    @property
    def planes(self) -> int:
        """Number of planes of a slab."""
        return math.prod(self.step)

    @property
    def pieces(self) -> int:
        """Number of pieces of a plane, at most; piece `n` of plane `p` has the bit `p * pieces + n`."""
        return math.prod(cut.most for cut in self.cuts)

    @property
    def slabs_of_frame(self) -> int:
        """Number of slabs that one frame goes to, at most."""
        return math.prod(cut.most_slabs for cut in self.cuts)

    @property
    def plane_shape(self) -> tuple[int, ...]:
        """Shape of a plane, its axes in the level's order."""
        cut = dict(zip(self.cut_axes, self.cuts, strict=True))
        return tuple(cut[axis].side if axis in cut else self.spec.shape[axis] for axis in self.picture)

    @property
    def outer_ratios(self) -> tuple[int, ...]:
        return tuple(self.ratios[axis] for axis in self.outer)

    @property
    def picture_ratios(self) -> tuple[int, ...]:
        return tuple(self.ratios[axis] for axis in self.picture)

    def box(self, y: slice, x: slice) -> tuple[slice, ...]:
        """The part of a mosaic's plane with these rows and columns, along its axes in the level's order."""
        sides = dict(zip(self.cut_axes, (y, x), strict=True))
        return tuple(sides.get(axis, slice(0, self.spec.shape[axis])) for axis in self.picture)

    def outer_key(self, key: Position) -> Position:
        """The part of a key along the outer axes."""
        return key[: len(self.outer)]

    def locate(self, place: Sequence[int]) -> tuple[Position, int]:
        """The part of the slab's key along the outer axes, and the number of the plane in it."""
        both = [divmod(at, step) for at, step in zip(place, self.step, strict=False)]
        return tuple(at for at, _ in both), _number([inside for _, inside in both], self.step)

    def pieces_of(self, place: Sequence[int]) -> list[Piece]:
        """The pieces that a frame, or at a lower level a slab of the level above, fills. Its place ends with (y, x)."""
        key, plane = self.locate(place)
        if not self.cuts:
            return [Piece(key, plane, plane, tuple(place), ())]
        number = plane * self.pieces
        # the last two of a place are row and column, whatever the order of the axes of the frames
        sides = [list(cut.of_piece(at)) for cut, at in zip(self.cuts, place[-len(self.cuts) :], strict=True)]
        return [
            Piece((*key, y.slab, x.slab), number + y.piece * self.cuts[1].most + x.piece, plane, tuple(place), (y, x))
            for y, x in itertools.product(*sides)
        ]

    def pieces_in(self, key: Position, ends: Sequence[int] = ()) -> Iterator[Piece]:
        """The pieces that make up a slab inside y and x. ends: of the picture along both; 0, or (): as planned."""
        outer = self.outer_key(key)
        places = zip(self.cuts, key[len(self.outer) :], ends or (0,) * len(self.cuts), strict=True)
        sides = [list(cut.in_slab(at, end)) for cut, at, end in places]
        for plane in range(self.planes):
            place = self.place(outer, plane)
            if not self.cuts:
                yield Piece(key, plane, plane, place, ())
                continue
            for y, x in itertools.product(*sides):
                bit = plane * self.pieces + y.piece * self.cuts[1].most + x.piece
                yield Piece(key, bit, plane, (*place, y.tile, x.tile), (y, x))

    def place(self, key: Position, plane: int) -> tuple[int, ...]:
        """The place along the outer axes: the inverse of `locate`."""
        local = self.local(plane)
        return tuple(at * step + more for at, step, more in zip(key, self.step, local, strict=False))

    def local(self, plane: int) -> tuple[int, ...]:
        """The place of a plane in its slab."""
        found = []
        for size in reversed(self.step):  # asked for each plane and frame: numpy's own takes ten times as long
            plane, at = divmod(plane, size)
            found.append(at)
        return tuple(reversed(found))

    def expected(self, key: Position, shape: Sequence[int], ends: Sequence[int] = ()) -> int:
        """The planes, as bits, that lie inside `shape`: sizes along the outer axes, 0 for one that is not known.

        ends: see `pieces_in`.
        """
        sides = [
            range(step if not size else max(0, min(step, size - at * step)))
            for at, step, size in zip(self.outer_key(key), self.step, shape, strict=True)
        ]
        if self.cuts:  # slabs at the edges of the picture have fewer pieces than others
            inside = {_number(local, self.step) for local in itertools.product(*sides)}
            return sum(1 << piece.bit for piece in self.pieces_in(key, ends) if piece.plane in inside)
        # by far the most frequent case, and asked for each frame
        if all(len(side) == step for side, step in zip(sides, self.step, strict=True)):
            return (1 << self.planes) - 1
        return sum(1 << _number(local, self.step) for local in itertools.product(*sides))

    def chunks(self, key: Position, ends: Sequence[int] = ()) -> Iterator[tuple[Position, Position, int]]:
        """The chunks of a slab: position in the level's grid, position in the slab, and its planes as bits.

        ends: of the picture along y and x, by default as planned; chunks beyond them are left out.
        """
        cut_axes, spec = self.cut_axes, self.spec
        ends = ends or [cut.end for cut in self.cuts]
        for local in itertools.product(*map(range, self.counts)):
            position = list(local)
            sides = []
            for axis, at, step in zip(self.outer, self.outer_key(key), self.step, strict=True):
                depth = spec.chunk_shape[axis]
                position[axis] += at * (step // depth)
                sides.append(range(local[axis] * depth, (local[axis] + 1) * depth))
            # the bits of one plane times those of the pieces in it: both count the same way
            planes = sum(1 << _number(places, self.step) * self.pieces for places in itertools.product(*sides))
            for axis, cut, at in zip(cut_axes, self.cuts, key[len(self.outer) :], strict=True):
                position[axis] += at * (cut.side // spec.chunk_shape[axis])
            if any(position[axis] * spec.chunk_shape[axis] >= end for axis, end in zip(cut_axes, ends, strict=True)):
                continue  # beyond the picture
            yield tuple(position), local, planes * self._pieces_of_chunk(key, local) if self.cuts else planes

    def _pieces_of_chunk(self, key: Position, local: Position) -> int:
        """The pieces of one plane, as bits, that a chunk of a mosaic has parts of."""
        sides = []
        for axis, cut, at in zip(self.cut_axes, self.cuts, key[len(self.outer) :], strict=True):
            first = local[axis] * self.spec.chunk_shape[axis]
            end = first + self.spec.chunk_shape[axis]
            sides.append([span.piece for span in cut.in_slab(at) if span.first < end and first < span.stop])
        return sum(1 << y * self.cuts[1].most + x for y, x in itertools.product(*sides))


def _number(place: Sequence[int], sizes: Sequence[int]) -> int:
    """The number of a place in a box of these sizes, the last axis fastest."""
    number = 0
    for at, size in zip(place, sizes, strict=True):
        number = number * size + at
    return number


def slab_grids(
    levels: Sequence[ArraySpec], tile: Sequence[int] = (), *, joined_layers: int = 1
) -> tuple[SlabGrid, ...]:
    """Cut all levels of an array, level 0 first.

    tile: (y, x) in items, of the tiles that make up its picture. joined_layers: chunks along z of a slab of level 0, at
    least; lower levels have what one such slab becomes.
    """
    axes = levels[0].axes
    outer = tuple(n for n, name in enumerate(axes) if name not in PICTURE_AXES)
    picture = tuple(n for n, name in enumerate(axes) if name in PICTURE_AXES)
    grids: list[SlabGrid] = []
    layers_of_slab = tuple(joined_layers if axes[axis] == "z" else 1 for axis in outer)
    before: tuple[int, ...] = (1,) * len(outer)  # what the slabs of the level above become here
    for number, level in enumerate(levels):
        ratios = (1,) * len(axes)
        if number + 1 < len(levels):
            ratios = tuple(below // here for below, here in zip(levels[number + 1].factors, level.factors, strict=True))
        step = tuple(
            math.lcm(level.chunk_shape[axis] * layers, ratios[axis], depth)
            for axis, layers, depth in zip(outer, layers_of_slab, before, strict=True)
        )
        layers_of_slab = (1,) * len(outer)
        above = grids[-1] if grids else None
        cuts = _cuts(level, ratios, tile, above) if tile else ()
        # a slab is made of complete slabs of the level above, so each is reduced once and into one place
        grids.append(SlabGrid(level, outer, picture, step, ratios, cuts))
        before = tuple(depth // ratios[axis] for axis, depth in zip(outer, step, strict=True))
    return tuple(grids)


def _cuts(level: ArraySpec, ratios: Sequence[int], tile: Sequence[int], above: SlabGrid | None) -> tuple[Cut, ...]:
    """The cuts along y and x. In lower levels a slab of the level above becomes a complete piece."""
    found = []
    for number, axis in enumerate(_sides(level)):
        least, size = math.lcm(level.chunk_shape[axis], ratios[axis]), level.shape[axis]
        if above is None:
            # not much larger than a tile: a slab that waits for more tiles stays in memory for longer
            found.append(Cut(size, least * (1 << max(0, (tile[number] // least).bit_length() - 1)), tile[number]))
        else:
            piece = above.cuts[number].side // above.ratios[axis]
            side = math.lcm(least, piece)
            if size:  # one slab for all of a short level: a common multiple may be far beyond its end
                side = min(side, -(-size // level.chunk_shape[axis]) * level.chunk_shape[axis])
            found.append(Cut(size, side, piece))
    return tuple(found)


def _sides(spec: ArraySpec) -> tuple[int, int]:
    # formats differ in whether samples come before y and x or after them
    return spec.axes.index("y"), spec.axes.index("x")


def level_sizes(grids: Sequence[SlabGrid], level: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of a level along the outer axes for these sizes of level 0."""
    full, here = grids[0], grids[level].spec
    return tuple(
        here.shape[axis] if size == full.spec.shape[axis] else reduced_size(size, here.factors[axis])
        for axis, size in zip(full.outer, sizes, strict=True)
    )


def level_shapes(grids: Sequence[SlabGrid], sizes: Sequence[int], picture: Sequence[int] = ()) -> list[tuple[int, ...]]:
    """Return the shapes of all levels for these sizes of level 0 along the outer axes.

    picture: the sizes of level 0 along y and x, of which a mosaic may know neither beforehand.
    """
    shapes = []
    for level, grid in enumerate(grids):
        shape = list(grid.spec.shape)
        for axis, size in zip(grid.outer, level_sizes(grids, level, sizes), strict=True):
            shape[axis] = size
        for axis, size in zip(grid.cut_axes, picture, strict=False):
            shape[axis] = grid.spec.shape[axis] or reduced_size(size, grid.spec.factors[axis])
        shapes.append(tuple(shape))
    return shapes


def frame_bytes(grids: Sequence[SlabGrid]) -> float:
    """Bytes of the chunks of all levels for each frame, or tile, with what lies beyond the edges of the picture."""
    total = 0.0
    for grid in grids:
        share = 1.0  # of a slab, for each tile
        for axis, cut, full in zip(grid.cut_axes, grid.cuts, grids[0].cuts, strict=True):
            share *= cut.slabs / full.tiles if cut.size else full.tile / (cut.side * grid.spec.factors[axis])
        frames = grid.planes * math.prod(grid.spec.factors[axis] for axis in grid.outer)
        total += grid.slab_bytes * share / frames
    return total


def final_sizes(grid: SlabGrid, planned: Sequence[int], extents: Sequence[int]) -> list[int]:
    """Return the sizes of level 0 along the outer axes after the run. extents: the sizes that frames have reached."""
    return [
        come if grid.spec.axes[axis] in _TRIMMED else size
        for axis, size, come in zip(grid.outer, planned, extents, strict=True)
    ]


def growing_axis(grid: SlabGrid) -> int | None:
    """The axis that a mirror grows along: time, else z, else the first other one with more than one item.

    Tiles that are images of their own come before z: a stack of one is complete long before that of the last one. An
    index into the axes of the level; None for an array of one frame.
    """
    spec = grid.spec
    sizes = {spec.axes[axis]: spec.shape[axis] for axis in grid.outer}
    images = [name for name, size in sizes.items() if name in IMAGE_AXES and size != 1]
    if images and not TILE_AXES.isdisjoint(spec.axes) and sizes.get(TIME, 1) == 1:
        return spec.axes.index(images[0])
    found = array_plan.growing_axis(sizes)
    return None if found is None else spec.axes.index(found)


def empty_levels(levels: Sequence[ArraySpec], axis: int) -> tuple[ArraySpec, ...]:
    """The levels before their first index is announced."""
    return tuple(replace(level, shape=(*level.shape[:axis], 0, *level.shape[axis + 1 :])) for level in levels)
