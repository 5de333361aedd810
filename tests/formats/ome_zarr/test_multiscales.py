"""OME metadata of all versions, and what readers accept of them."""

from __future__ import annotations

from typing import Any

import pytest

from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.ome_zarr.hierarchy import Node
from acqstream.formats.ome_zarr.metadata import Multiscales, parse_multiscales

_AXES = [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}]


def _parse(ome: dict[str, Any] | None = None, **changes: Any) -> Multiscales:
    image = {"axes": _AXES, "datasets": [{"path": "0"}], **changes}
    kept = {name: value for name, value in image.items() if value is not None}
    return parse_multiscales(Node("g/zarr.json", ome={"multiscales": [kept], **(ome or {})}))


def test_that_axes_get_our_names() -> None:
    axes = [{"name": "T", "type": "time"}, {"name": "C", "type": "channel"}, {"name": "p"}, {"name": "Z"}, *_AXES]
    assert _parse(axes=axes).axes == ("time", "channel", "p", "z", "y", "x")
    assert _parse(axes=["t", "c", "y", "x"]).axes == ("time", "channel", "y", "x")
    assert _parse(axes=None).axes == ("time", "channel", "z", "y", "x")


@pytest.mark.parametrize(
    ("unit", "ours", "factor"),
    [
        ("micrometer", "um", 1),
        ("nanometer", "um", 1e-3),
        ("meter", "um", 1e6),
        ("angstrom", "um", 1e-4),
        ("\u00b5m", "um", 1),
        ("millisecond", "s", 1e-3),
        ("minute", "s", 60),
        ("furlong", "furlong", 1),
        (None, "", 1),
    ],
)
def test_units(unit: str | None, ours: str, factor: float) -> None:
    steps = [{"type": "scale", "scale": [2, 1]}, {"type": "translation", "translation": [10, 0]}]
    axes = [{"name": "z", "type": "space", "unit": unit}, {"name": "x", "type": "space"}]
    image = _parse(axes=axes, datasets=[{"path": "0", "coordinateTransformations": steps}])
    assert image.units == (ours, "")
    assert image.levels[0].scale == pytest.approx((2 * factor, 1))
    assert image.levels[0].translation == pytest.approx((10 * factor, 0))


def test_that_transformations_of_the_whole_come_after() -> None:
    steps = [{"type": "scale", "scale": [2, 3]}, {"type": "translation", "translation": [1, 1]}]
    common = [{"type": "scale", "scale": [10, 100]}, {"type": "translation", "translation": [5, 0]}]
    image = _parse(datasets=[{"path": "0", "coordinateTransformations": steps}], coordinateTransformations=common)
    assert (image.levels[0].scale, image.levels[0].translation) == ((20, 300), (15, 100))
    assert image.has_scales
    assert not _parse().has_scales


@pytest.mark.parametrize(
    ("omero", "expected"),
    [
        ({"channels": [{"label": "a"}, {"label": "b"}]}, ("a", "b")),
        ({"channels": [{"label": "a"}, {}]}, ()),
        ({"channels": 3}, ()),
        ("x", ()),
        (None, ()),
    ],
)
def test_channels(omero: object, expected: tuple[str, ...]) -> None:
    assert _parse({"omero": omero}).channels == expected


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"version": "0.6"}, UnsupportedFeature),
        ({"version": 0.5}, UnsupportedFeature),
        ({"axes": []}, CorruptDataset),
        ({"axes": None, "version": "0.4"}, CorruptDataset),
        ({"axes": ["x", "X"]}, CorruptDataset),
        ({"datasets": []}, CorruptDataset),
        ({"datasets": [{"path": "../0"}]}, CorruptDataset),
        ({"datasets": [{"path": "0", "coordinateTransformations": [{"type": "scale"}]}]}, CorruptDataset),
        ({"datasets": [{"path": "0", "coordinateTransformations": [{"type": "affine"}]}]}, UnsupportedFeature),
        ({"coordinateTransformations": [{"type": "scale", "scale": [1e308, 1]}] * 2}, CorruptDataset),
    ],
)
def test_that_other_metadata_are_refused(changes: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"g/zarr\.json"):
        _parse(**changes)
