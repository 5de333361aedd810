"""Every pixel of a picture lies in one slab and one tile, as both sides of a cut say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from acqstream.mirrors.slab_grid import Cut


@given(st.integers(1, 90), st.integers(1, 40), st.integers(1, 40))
def test_slabs_and_tiles_meet_where_both_have_pixels(size: int, side: int, tile: int) -> None:
    cut = Cut(size, side, tile)
    by_slab = {(span.tile, span.slab): span for slab in range(cut.slabs) for span in cut.in_slab(slab)}
    n_tiles = -(-size // tile)
    by_tile = {(span.tile, span.slab): span for number in range(n_tiles) for span in cut.of_piece(number)}
    assert by_slab == by_tile
    met = {(pixel // tile, pixel // side) for pixel in range(size)}
    assert by_slab.keys() == met
    for span in by_slab.values():
        pixels = [p for p in range(size) if (p // tile, p // side) == (span.tile, span.slab)]
        assert pixels == [*range(span.slab * side + span.first, span.slab * side + span.stop)]
        assert span.inside == pixels[0] - span.tile * tile


@given(st.integers(1, 90), st.integers(1, 40), st.integers(1, 40))
def test_pieces_of_a_slab_have_numbers_of_their_own(size: int, side: int, tile: int) -> None:
    cut = Cut(size, side, tile)
    for slab in range(cut.slabs):
        spans = list(cut.in_slab(slab))
        assert len({span.piece for span in spans}) == len(spans)
        assert all(0 <= span.piece < cut.most for span in spans)
        assert cut.inside(slab) == sum(span.stop - span.first for span in spans)
    for number in range(-(-size // tile)):
        assert len(list(cut.of_piece(number))) <= cut.most_slabs
    assert list(cut.of_piece(-(-size // tile))) == []


@given(st.integers(1, 90), st.integers(1, 40), st.integers(1, 40))
def test_a_picture_without_an_end_is_cut_as_one_that_ends_far_away(end: int, side: int, tile: int) -> None:
    endless, far, near = Cut(0, side, tile), Cut(100_000, side, tile), Cut(end, side, tile)
    assert (endless.slabs, endless.tiles) == (0, 0)
    assert (endless.most, endless.most_slabs) == (far.most, far.most_slabs)
    for number in range(-(-end // tile)):
        assert list(endless.of_piece(number)) == list(far.of_piece(number))
    for slab in range(-(-end // side)):
        assert list(endless.in_slab(slab)) == list(far.in_slab(slab))
        assert endless.inside(slab) == side
        reached = {(span.tile, span.piece) for span in endless.in_slab(slab, end)}
        assert reached == {(span.tile, span.piece) for span in near.in_slab(slab)}
