"""Virtual datasets say the distance, unit and place of the position that they show."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import urlopen

import pytest

import acqstream
from tests.dataset.test_own_plans import INTERVALS, NAMES, STARTS, STEPS, write
from tests.web.web_process import Site, web_thread


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("served")
    write(folder / "cells")
    with web_thread(folder) as site:
        yield site


def document(site: Site, path: str) -> Any:
    return json.loads(urlopen(f"{site.url}/data/{path}").read())


@pytest.mark.parametrize("name", [*STEPS, "C"])
@pytest.mark.parametrize("is_fixed", [False, True])
def test_ome_zarr(site: Site, name: str, is_fixed: bool) -> None:
    path = f"cells@position={name}/ome.zarr" if is_fixed else f"cells/ome.zarr/{NAMES.index(name)}"
    image = document(site, f"{path}/zarr.json")["attributes"]["ome"]["multiscales"][0]
    units = {axis["name"]: axis.get("unit") for axis in image["axes"]}
    scale, move = (
        dict(zip(units, one[one["type"]], strict=True)) for one in image["datasets"][0]["coordinateTransformations"]
    )
    is_known = name in STEPS
    assert (units["z"], units["t"]) == (("micrometer", "second") if is_known else (None, None))
    assert (scale["z"], scale["t"]) == (STEPS.get(name, 1.0), INTERVALS.get(name, 1.0))
    if is_known:
        assert (move["z"], move["t"]) == (STARTS[name], float(name == "B"))


@pytest.mark.parametrize("layout", ["n5", "precomputed"])
@pytest.mark.parametrize("name", [*STEPS, "C"])
def test_other_layouts(site: Site, layout: str, name: str) -> None:
    with acqstream.open(f"{site.url}/data/cells@position={name},time=1/{layout}") as ds:
        level = ds.levels[0]
        z = level.axes.index("z")
        assert (level.scale[z], level.units[z]) == ((STEPS[name], "um") if name in STEPS else (1.0, ""))
