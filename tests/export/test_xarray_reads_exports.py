"""xarray opens an HDF5 export, through netCDF-4's conventions, as the array that the dataset itself gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import acqstream
from tests.export.sample_exports import export, write_cells
from tests.log.make_frames import frame_of, write_log

xarray = pytest.importorskip("xarray")
pytest.importorskip("h5netcdf")


@pytest.mark.parametrize("is_copy", [False, True], ids=["reference", "copy"])
def test_dimensions_and_coordinates_are_equal(tmp_path: Path, is_copy: bool) -> None:
    write_cells(tmp_path / "cells")
    export(tmp_path / "cells", "hdf5", is_copy=is_copy)
    with acqstream.open(tmp_path / "cells") as ds:
        own = ds.to_xarray()
        with xarray.open_dataset(tmp_path / "cells.h5", engine="h5netcdf") as opened:
            array = opened["image"]
            assert array.dims == own.dims
            assert set(array.coords) == set(own.coords)
            for name, coordinate in own.coords.items():
                np.testing.assert_array_equal(array.coords[name], coordinate)
                assert array.coords[name].attrs == coordinate.attrs
            np.testing.assert_array_equal(array.values, own.compute(scheduler="synchronous").values)


def test_bits_are_a_range_and_change_no_number(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", [frame_of(0, bits=12)])
    export(tmp_path / "cells", "hdf5")
    with xarray.open_dataset(tmp_path / "cells.h5", engine="h5netcdf") as opened:
        assert opened["image"].attrs["valid_range"].tolist() == [0, 4095]
        assert opened["image"].dtype == np.uint16
