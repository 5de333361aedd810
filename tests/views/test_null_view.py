"""The null view's sums against numpy's; they change with whatever can go wrong."""

from __future__ import annotations

import random

import numpy as np
import pytest

from acqstream.mirrors.view_worker import view_maker
from acqstream.model.view_spec import LOG_VIEW_KINDS, NULL_KIND, PYRAMID_KIND, ViewSpec
from acqstream.views.frame_feed import Lease
from acqstream.views.null_view import NullView
from acqstream.views.pyramid_view import PyramidView
from tests.log.make_frames import image_of
from tests.views.view_sums import sums_of

IMAGES = [image_of(number, (31, 33)) for number in range(20)]


def view_of(images: list[np.ndarray]) -> NullView:
    view = NullView()
    for row, image in enumerate(images):
        view.keep(view.take(Lease(row, image)))
    return view


@pytest.mark.parametrize(("shape", "dtype"), [((31, 33), "<u2"), ((7, 5), "|u1"), ((9, 8, 3), "|u1"), ((1, 1), "|u1")])
def test_sums_are_those_of_numpy(shape: tuple[int, ...], dtype: str) -> None:
    images = [image_of(number, shape, dtype) for number in range(10)]
    assert view_of(images).summary() == sums_of(images)


def test_the_sum_is_exact_beyond_64_bits() -> None:
    view = NullView()
    white = Lease(0, np.full((100, 100), 65535, np.uint16))
    taken = view.take(white)._replace(pixel_sum=2**63)
    for _ in range(4):
        view.keep(taken)
    assert view.summary()["pixel_sum"] == str(2**65)


def test_order_does_not_matter() -> None:
    assert view_of(random.Random(1).sample(IMAGES, len(IMAGES))).summary() == sums_of(IMAGES)


def test_a_frame_that_is_missing_doubled_or_wrong_shows() -> None:
    right = sums_of(IMAGES)
    swapped = IMAGES[0].copy()
    swapped[0, 0], swapped[0, 1] = IMAGES[0][0, 1], IMAGES[0][0, 0]  # the same sum of pixels
    for wrong in (IMAGES[1:], [*IMAGES, IMAGES[3]], [*IMAGES[1:], IMAGES[1]], [swapped, *IMAGES[1:]]):
        assert view_of(wrong).summary()["hash_sum"] != right["hash_sum"]


def test_taking_alone_keeps_nothing() -> None:
    view = NullView()
    view.take(Lease(0, IMAGES[0]))
    assert view.summary() == sums_of([])


def test_it_goes_on_from_its_state() -> None:
    view = NullView()
    view.restore(view_of(IMAGES[:9]).save()[0], 9)
    for row, image in enumerate(IMAGES[9:], 9):
        view.keep(view.take(Lease(row, image)))
    assert view.summary() == sums_of(IMAGES)


def test_every_name_that_can_be_asked_for_can_be_made() -> None:
    made = {kind: type(view_maker(ViewSpec(kind=kind, name=kind))()) for kind in LOG_VIEW_KINDS}
    assert made == {NULL_KIND: NullView, PYRAMID_KIND: PyramidView}
