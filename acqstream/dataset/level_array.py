"""A level at one moment, as an array of fixed shape for array libraries; it reads when it is indexed.

A level grows; arrays of dask, xarray and napari keep their shape. A `LevelArray` therefore reads by the layout that the
level had when the array was made. A value that appears in between, or a tile left of the first one, moves nothing.
`import_optional` imports the libraries.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Any

from numpy.typing import NDArray

from acqstream.arrays.level_layout import LevelAxis, LevelLayout, LevelSource
from acqstream.arrays.selection import Selection, as_numpy, expand
from acqstream.dataset.sources import reopened
from acqstream.errors import ConfigError
from acqstream.extras import install_command
from acqstream.model.axes import AxisValue


def import_optional(module: str, extra: str) -> Any:
    """Import a module. Raises ConfigError with the command that installs the extra."""
    try:
        return import_module(module)
    except ImportError as error:
        text = f"{module} is needed for this and cannot be imported ({error}): {install_command(extra)}"
        raise ConfigError(text) from error


_AT_0 = range(1)


class LevelArray:
    """One level of a dataset as an array: the outer axes, then y, x and for RGB c.

    layout is the array that it shows, by default the level's. Axes in `hidden` have one value there; the array lacks
    them. Pixels are read when it is indexed (slices and integers, one per axis, or fewer, with Ellipsis), from any
    thread; frames and chunks that are not stored are zeros. A pickled array carries the level's address, and the
    process that loads it opens the dataset itself. A dataset that was closed raises DatasetError.
    """

    def __init__(
        self, source: LevelSource, layout: LevelLayout | None = None, hidden: Collection[str] = frozenset()
    ) -> None:
        self.layout = source.layout() if layout is None else layout
        self.shown = tuple(axis for axis in self.layout.all_axes if axis.name not in hidden)
        self.axes = tuple(axis.name for axis in self.shown)
        self.shape = tuple(len(axis.values) for axis in self.shown)
        self.dtype = self.layout.dtype
        self._hidden = frozenset(hidden)
        self._source: LevelSource | None = source
        self._address = source.address
        self._item_count = source.item_count
        # Chunks of a growing array may change without changing its shape: only a complete one has a lasting token.
        self._token = "" if source.is_settled else uuid.uuid4().hex

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def outer(self) -> tuple[LevelAxis, ...]:
        """The axes of the array that are not those of pixels."""
        return tuple(axis for axis in self.layout.outer if axis.name not in self._hidden)

    @property
    def values(self) -> dict[str, Sequence[AxisValue]]:
        """Values of the outer axes, by name."""
        return {axis.name: axis.values for axis in self.outer}

    def __dask_tokenize__(self) -> tuple[object, ...]:
        axes = [(axis.name, tuple(axis.values)) for axis in self.layout.outer]
        return (self._address, self._item_count, axes, self.layout.origin, self.shape, self._token)

    def __getitem__(self, selection: Selection) -> NDArray[Any]:
        ranges, index = expand(selection, self.shape)
        source = self._source or reopened(self._address, self._item_count)
        remaining = iter(ranges)
        of_layout = [_AT_0 if axis.name in self._hidden else next(remaining) for axis in self.layout.all_axes]
        selected: NDArray[Any] = source.read(self.layout, of_layout).reshape([*map(len, ranges)])[index]
        return selected

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return as_numpy(lambda: self[...], dtype, copy)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_source": None}

    def __repr__(self) -> str:
        return f"<LevelArray {self._address.path!r}, {self.shape} {self.dtype}>"
