"""The engine of xarray for `xr.open_dataset(path)` and `xr.open_datatree(path)` (entry point group xarray.backends).

Only xarray imports this module.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from numpy.typing import NDArray
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

from acqstream.dataset.dask_arrays import chunk_shape
from acqstream.dataset.dataset import Dataset, open_dataset
from acqstream.dataset.level_array import LevelArray
from acqstream.dataset.xarray_arrays import coordinates, dimension_names
from acqstream.errors import AcqStreamError, DatasetError
from acqstream.formats.ndtiff import FORMAT as NDTIFF
from acqstream.formats.ome_zarr.foreign import has_own_note
from acqstream.formats.ome_zarr.hierarchy import DOCUMENT_NAMES
from acqstream.formats.registry import chunk_formats
from acqstream.storage.stores.data_path import data_path_of

IMAGE = "image"
"""Name of the variable that holds the pixels."""

_OWN_FILES = frozenset({"attributes.json", "header.wkw", "datasource-properties.json"})
"""Files that mark a dataset and that no other engine reads, besides *.index."""


class AcqStreamBackend(BackendEntrypoint):
    """Opens a level of a dataset as one lazy variable `image`; without `chunks=` no dask is needed."""

    description = "NDTiff datasets and their mirrors, finished or growing"
    url = ""
    open_dataset_parameters = ("filename_or_obj", "drop_variables", "level", "follow_links")
    supports_groups = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """True for the folder of a dataset and for files in it that no other engine reads; never raises."""
        if not isinstance(filename_or_obj, (str, os.PathLike)):
            return False
        path = Path(filename_or_obj)
        try:
            is_folder = path.is_dir()
            if not is_folder and path.suffix != ".index" and path.name not in _OWN_FILES:
                return False
            if any((path / name).exists() for name in DOCUMENT_NAMES):  # xarray has an engine for Zarr of its own
                return has_own_note(data_path_of(path))
            inside = path / "a file in it" if is_folder else path  # so a folder that only holds datasets is none
            return NDTIFF.detect(inside) or any(entry.detect(data_path_of(path)) for entry in chunk_formats())
        except (AcqStreamError, OSError, ValueError):  # not ours to complain about
            return False

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        level: int = 0,
        follow_links: bool = False,
    ) -> xarray.Dataset:
        """Level `level` of the dataset; follow_links as in `acqstream.open`, and errors too."""
        dataset = open_dataset(filename_or_obj, follow_links=follow_links)
        try:
            level_dataset = _level_dataset(dataset, level, drop_variables)
        except BaseException:
            dataset.close()
            raise
        level_dataset.set_close(dataset.close)
        return level_dataset

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        follow_links: bool = False,
    ) -> dict[str, xarray.Dataset]:
        """All levels, by path: `/level0`, the full resolution, `/level1` ..."""
        dataset = open_dataset(filename_or_obj, follow_links=follow_links)
        try:
            levels = range(len(dataset.levels))
            groups = {f"/level{number}": _level_dataset(dataset, number, drop_variables) for number in levels}
        except BaseException:
            dataset.close()
            raise
        root = xarray.Dataset(attrs=dict(dataset.summary_metadata))
        root.set_close(dataset.close)
        return {"/": root, **groups}

    def open_datatree(self, filename_or_obj: Any, **keywords: Any) -> xarray.DataTree:
        """As `open_groups_as_dict`, as a tree."""
        return xarray.DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, **keywords))


def _level_dataset(dataset: Dataset, number: int, drop: str | Iterable[str] | None) -> xarray.Dataset:
    if not 0 <= number < len(dataset.levels):
        raise DatasetError(f"{dataset.path}: no level {number}; there are levels 0 to {len(dataset.levels) - 1}")
    source = dataset.levels[number].source
    array = LevelArray(source)
    chunks = chunk_shape(array)
    names = dimension_names(array)
    encoding = {"preferred_chunks": dict(zip(names, chunks, strict=True))}
    variables = {IMAGE: xarray.Variable(names, indexing.LazilyIndexedArray(_Pixels(array)), encoding=encoding)}
    dropped = [drop] if isinstance(drop, str) else list(drop or ())
    named = xarray.Dataset(variables, coordinates(source, array), source.attributes)
    return named.drop_vars([name for name in dropped if name in named.variables])


class _Pixels(BackendArray):
    """A `LevelArray` for xarray's lazy indexing."""

    def __init__(self, array: LevelArray) -> None:
        self.array = array
        self.shape = array.shape
        self.dtype = array.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> NDArray[Any]:
        selected: NDArray[Any] = indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, self._read
        )
        return selected

    def _read(self, key: tuple[Any, ...]) -> NDArray[Any]:
        return np.asarray(self.array[key])
