"""What to export, and what was exported. Pure.

Frames and a part of the picture are chosen by the values of axes: `time=0:10`, `channel=DAPI`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from acqstream.arrays.level_layout import LevelAxis, LevelLayout
from acqstream.errors import ConfigError
from acqstream.model.axes import AxisValue


@dataclass(frozen=True, slots=True)
class Choice:
    """Values of one axis: those equal to `text`, or integers start .. stop - 1 where is_range; None: no bound."""

    text: str
    is_range: bool = False
    start: int | None = None
    stop: int | None = None

    def takes(self, value: AxisValue) -> bool:
        """True if the choice takes this value. Texts have no order: a range takes none of them."""
        if not self.is_range:
            return str(value) == self.text
        if not isinstance(value, int):
            return False
        return (self.start is None or value >= self.start) and (self.stop is None or value < self.stop)


def parse_choices(texts: Sequence[str]) -> dict[str, Choice]:
    """Choices by axis, from texts such as "time=0:10 channel=DAPI". Raises ConfigError.

    `AXIS=VALUE` takes one value, `AXIS=START:STOP` integers from START on and before STOP; both may be left out. A name
    with a space in it needs a text of its own.
    """
    choices: dict[str, Choice] = {}
    for text in texts:
        for part in text.split() if text.count("=") > 1 else [text.strip()]:
            axis, sign, value = part.partition("=")
            if not sign or not axis or not value:
                raise ConfigError(f"a choice must be AXIS=VALUE or AXIS=START:STOP, not {part!r}")
            if axis in choices:
                raise ConfigError(f"axis {axis!r} is chosen twice")
            choices[axis] = _choice(value)
    return choices


def chosen(
    layout: LevelLayout,
    choices: Mapping[str, Choice],
    fitted: Callable[[LevelLayout], LevelLayout] = lambda layout: layout,
) -> LevelLayout:
    """The part of a layout that the choices take; y and x are chosen by pixel numbers of the full resolution.

    fitted: see `LevelSource`; frames that are chosen may be of another shape than the first one of all.

    Raises ConfigError for an axis that is absent or cannot be chosen, and for a choice that takes nothing.
    """
    names = layout.axes[: len(layout.outer) + 2]
    for name in choices:
        if name not in names:
            raise ConfigError(f"the dataset has no axis {name!r}; expected one of {', '.join(names)}")
    outer = [_part(axis, choices[axis.name]) if axis.name in choices else axis for axis in layout.outer]
    layout = replace(layout, outer=tuple(outer))
    layout = fitted(layout) if outer and choices else layout
    sides = [_window(axis, choices[axis.name]) if axis.name in choices else axis for axis in layout.pixels[:2]]
    return replace(layout, pixels=(*sides, *layout.pixels[2:]))


def _choice(value: str) -> Choice:
    start, sign, stop = value.partition(":")
    if not sign:
        return Choice(value)
    try:
        return Choice(value, True, int(start) if start else None, int(stop) if stop else None)
    except ValueError:
        return Choice(value)  # a name with a colon


def _part(axis: LevelAxis, choice: Choice) -> LevelAxis:
    taken = [at for at, value in enumerate(axis.values) if choice.takes(value)]
    if not taken:
        raise ConfigError(f"axis {axis.name!r} has no value {choice.text!r}; it has {_shown(axis.values)}")
    numbers = None if axis.numbers is None else [axis.numbers[at] for at in taken]
    return LevelAxis(axis.name, [axis.values[at] for at in taken], numbers)


def _window(axis: LevelAxis, choice: Choice) -> LevelAxis:
    """A range of pixels. An axis of pixels stays a range: sources read it as one."""
    first, end = int(axis.values[0]), int(axis.values[0]) + len(axis.values)
    if choice.is_range:
        start = first if choice.start is None else max(first, choice.start)
        stop = end if choice.stop is None else min(end, choice.stop)
    else:
        start = int(choice.text) if choice.text.lstrip("-").isdigit() else end
        stop = start + 1
    if not first <= start < stop <= end:
        raise ConfigError(f"axis {axis.name!r} has no pixels {choice.text!r}; it has {first} to {end - 1}")
    return LevelAxis(axis.name, range(start, stop), range(start, stop))


def _shown(values: Sequence[AxisValue]) -> str:
    texts = [str(value) for value in values]
    return ", ".join(texts if len(texts) <= 6 else [*texts[:5], "...", texts[-1]])


Kind = Literal["hdf5", "ome-tiff", "tiff", "table"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SUFFIXES: Mapping[Kind, str] = {"hdf5": ".h5", "ome-tiff": ".ome.tif", "tiff": ".tif", "table": ".csv"}
COMPRESSIONS: Mapping[Kind, tuple[str, ...]] = {
    "hdf5": ("none", "zlib"),  # other filters are no part of HDF5 itself: most programs lack them
    "ome-tiff": ("none", "zlib", "zstd"),
    "tiff": ("none",),
    "table": ("none",),
}
_TILE_UNIT = 16  # TIFF 6.0: sides of tiles are multiples of it
_DEFAULT_TILE = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """One export. choices are values of axes to take, by axis. Raises ConfigError for options that do not fit.

    is_copy: copy the pixels into an HDF5 file instead of referring to them. tile: longest side of tiles in pixels, of
    OME-TIFF. is_separate: each tile of a tiled dataset is an image; else they make up one picture. is_replaced: replace
    an existing file.
    """

    kind: Kind
    is_copy: bool = False
    choices: Mapping[str, Choice] = field(default_factory=dict)
    compression: str = "none"
    tile: int = _DEFAULT_TILE
    is_separate: bool = False
    is_replaced: bool = False

    def __post_init__(self) -> None:
        possible = COMPRESSIONS[self.kind]
        if self.compression not in possible:
            raise ConfigError(f"{self.kind} has no compression {self.compression!r}; it has {', '.join(possible)}")
        if self.is_copy and self.kind != "hdf5":
            has = "has no" if self.kind == "table" else "always copies"
            raise ConfigError(f"{self.kind} {has} pixels; --copy is for hdf5")
        if self.kind == "hdf5" and self.compression != "none" and not self.is_copy:
            raise ConfigError("referenced pixels stay as they are; compression of hdf5 needs --copy")
        if self.tile != _DEFAULT_TILE and self.kind != "ome-tiff":
            raise ConfigError(f"{self.kind} has no tiles; --tile is for ome-tiff")
        if self.tile < _TILE_UNIT or self.tile % _TILE_UNIT:
            raise ConfigError(f"the side of tiles must be a multiple of {_TILE_UNIT}, not {self.tile}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What was exported. missing counts frames, tiles or chunks of the source that are not stored: they read as 0.

    levels are the shapes of a plane in each level. references counts the external datasets that point at the stacks,
    0 for a copy. notes are for the user.
    """

    path: str
    source: str
    kind: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    size_bytes: int
    missing: int
    images: int = 1
    levels: tuple[tuple[int, ...], ...] = ()
    references: int = 0
    notes: tuple[str, ...] = ()
