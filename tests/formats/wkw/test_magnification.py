"""Names of magnifications, and the anisotropic ones that webKNOSSOS expects."""

from __future__ import annotations

import itertools

import pytest

from acqstream.formats.wkw.metadata import coarser, folder_names, magnification_name, parse_magnification


@pytest.mark.parametrize(
    ("magnification", "names"),
    [((1, 1, 1), ("1", "1-1-1")), ((2, 2, 1), ("2-2-1",)), ((16, 16, 16), ("16", "16-16-16"))],
)
def test_names_lead_back(magnification, names):
    assert magnification_name(magnification) == names[0]
    assert folder_names(magnification) == names
    assert {parse_magnification(name) for name in names} == {magnification}


@pytest.mark.parametrize("name", ["", "0", "3", "2-2", "2-2-3", "02", "2-2-1-1", "a", "1-1-1 ", "-1", "99999999999"])
def test_other_names_are_none(name):
    assert parse_magnification(name) is None


@pytest.mark.parametrize(
    ("voxel_size", "expected"),
    [
        ((0.1, 0.1, 0.5), [(2, 2, 1), (4, 4, 1), (8, 8, 2), (16, 16, 4)]),  # as webknossos 4.3.3 made the golden one
        ((1.0, 1.0, 1.0), [(2, 2, 2), (4, 4, 4), (8, 8, 8), (16, 16, 16)]),
        ((11.24, 11.24, 28.0), [(2, 2, 1), (4, 4, 2), (8, 8, 4), (16, 16, 8)]),
        ((1.0, 1.0, 0.25), [(1, 1, 2), (1, 1, 4), (2, 2, 8), (4, 4, 16)]),
        ((0.108, 0.108, 5.0), [(2, 2, 1), (4, 4, 1), (8, 8, 1), (16, 16, 1)]),
        ((1.0, 2.0, 4.0), [(2, 1, 1), (4, 2, 1), (8, 4, 2), (16, 8, 4)]),
        (None, [(2, 2, 1), (4, 4, 1), (8, 8, 1), (16, 16, 1)]),
    ],
)
def test_the_axes_with_the_finest_voxels_are_doubled_until_they_match(voxel_size, expected):
    found = list(itertools.islice(coarser(voxel_size), 4))
    assert found == expected
    assert [max(magnification) for magnification in found] == [2, 4, 8, 16]
