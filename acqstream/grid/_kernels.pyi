"""Types of `_kernels.c`. Only `acqstream.grid.kernels` calls it."""

from typing import Any

from numpy.typing import NDArray

INTERFACE: int

def put(place: NDArray[Any], pixels: NDArray[Any], begin: tuple[int, ...], is_past_cache: bool, /) -> None: ...
def equal(one: NDArray[Any], other: NDArray[Any], /) -> bool: ...
def halve(source: NDArray[Any], target: NDArray[Any], is_half_up: bool, /) -> None: ...
def reduce(
    planes: tuple[NDArray[Any], ...],
    limits: tuple[int, ...],
    place: NDArray[Any],
    begin: tuple[int, ...],
    shape: tuple[int, ...],
    ratios: tuple[int, ...],
    is_past_cache: bool,
    /,
) -> None: ...
