"""Properties of a sequence before it runs: axes, channel names, cameras, grid cells, tiles, number of frames."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from useq import AcquireImage, MDASequence

from acqstream.description.stage import StageAffine
from acqstream.model.axes import MAX_STRING

if TYPE_CHECKING:
    from pymmcore_plus import CMMCorePlus
    from useq import MDAEvent

logger = logging.getLogger(__name__)

MAX_COUNTED_EVENTS = 50_000  # making an event costs some 10 us; longer sequences start without being counted
NO_CHANNEL = "Default"  # the word of Micro-Manager for "no channel"
Cell = tuple[int, int]
_PARALLEL = StageAffine(1.0, 0.0, 0.0, 1.0)  # of a camera without a calibration
Cameras = tuple[str, ...]


class CameraSelector:
    """Reads definitions of a core; without one, all images are of one camera. initial: the cameras in use now."""

    def __init__(self, core: CMMCorePlus | None = None) -> None:
        self.initial: Cameras = ("",)
        if core is not None:
            self.initial = tuple(map(core.getPhysicalCameraDevice, range(core.getNumberOfCameraChannels()))) or ("",)
        self._chosen = cache(partial(_camera_of_channel, core))
        self._physical = cache(partial(_physical_cameras, core))

    def select(self, channel: Any, properties: Iterable[Any] | None, before: Cameras) -> Cameras:
        """The cameras once channel and properties of an event are set; those `before` it where these choose none."""
        label = _camera_among(properties or ()) or (channel and self._chosen(channel.group, channel.config))
        return self._physical(label) if label else before


@dataclass(frozen=True, slots=True)
class GridCells:
    """(row, column) of every grid index: of the sequence's own plan, and of positions with a plan of their own."""

    main: tuple[Cell, ...]
    by_position: Mapping[int, tuple[Cell, ...]]

    def of_position(self, position: int) -> tuple[Cell, ...]:
        return self.by_position.get(position, self.main)

    def cell(self, position: int, grid: int) -> Cell:
        return self.of_position(position)[grid]

    @property
    def shape(self) -> Cell:
        """Rows and columns of the smallest grid that holds all cells."""
        cells = [cell for plan in (self.main, *self.by_position.values()) for cell in plan]
        return max(row for row, _ in cells) + 1, max(column for _, column in cells) + 1


@dataclass(frozen=True, slots=True)
class SequencePlan:
    """Properties of a sequence that are known before the run.

    keys are the index keys that occur, slowest first, empty when unknown. is_known is False for lists, generators and
    queues of events. is_unique: no two events share an index. names_as_values: channel names can be the
    values of the axis. cameras has the names of all if several make images at the same time. frames counts the images,
    None when unknown.
    """

    keys: tuple[str, ...] = ()
    is_known: bool = False
    is_unique: bool = False
    names_as_values: bool = False
    channel_names: tuple[str, ...] = ()
    cells: GridCells | None = None
    selector: CameraSelector = field(default_factory=CameraSelector)
    cameras: Cameras = ()
    frames: int | None = None


def plan_sequence(sequence: MDASequence, selector: CameraSelector | None = None) -> SequencePlan:
    """The plan of `sequence`, as the engine is about to run it. selector: of its core.

    To be called after the inner engine's `setup_sequence`, which sets the field of view that grids are computed from:
    sequences remember what they computed first.
    """
    selector = selector or CameraSelector()
    if not is_real_sequence(sequence):
        return SequencePlan(selector=selector, cameras=_cameras((), selector))
    parts = list(sequence_parts(sequence))
    keys = dict.fromkeys(str(key) for part in parts for key in part.used_axes)
    frames, is_unique = _count(sequence, selector, has_parts=len(parts) > 1)
    return SequencePlan(
        keys=tuple(keys),
        is_known=True,
        is_unique=is_unique,
        names_as_values=all(_are_values(part.channels) for part in parts),
        channel_names=_channel_names(parts),
        cells=_grid_cells(sequence) if "g" in keys else None,
        selector=selector,
        cameras=_cameras(parts, selector),
        frames=frames,
    )


def is_real_sequence(sequence: object) -> bool:
    """False for the placeholder that stands for a list, generator or queue of events."""
    return isinstance(sequence, MDASequence) and type(sequence).__name__ != "GeneratorMDASequence"


def acquires(event: MDAEvent) -> bool:
    """True when `event` asks for an image, and not for autofocus or an action of the user."""
    action = getattr(event, "action", None)
    return action is None or isinstance(action, AcquireImage)


def sequence_parts(sequence: MDASequence) -> Iterator[MDASequence]:
    """`sequence` and the sub-sequences of its positions, at any depth."""
    yield sequence
    for position in sequence.stage_positions:
        if position.sequence is not None:
            yield from sequence_parts(position.sequence)


def _cameras(parts: Sequence[MDASequence], selector: CameraSelector) -> Cameras:
    """All cameras of channels and positions, in order, if some make images at the same time; else none."""
    known = [] if parts and parts[0].channels else [selector.initial]
    for part in parts:
        known += [selector.select(channel, None, selector.initial) for channel in part.channels]
        known += [selector.select(None, place.properties, known[0]) for place in part.stage_positions]
    several = any(len(cameras) > 1 for cameras in known)
    return tuple(dict.fromkeys(name for cameras in known for name in cameras)) if several else ()


def _count(sequence: MDASequence, selector: CameraSelector, *, has_parts: bool) -> tuple[int | None, bool]:
    """Number of images, and whether their indices differ: a sub-sequence's time plan replaces the outer time index."""
    total = 1
    for size in sequence.sizes.values():
        total *= size or 1
    if total > MAX_COUNTED_EVENTS:
        return None, not has_parts
    indices: set[tuple[tuple[str, int], ...]] = set()
    count = images = 0
    cameras = selector.initial
    for position, event in enumerate(islice(sequence, MAX_COUNTED_EVENTS + 1)):
        if position == MAX_COUNTED_EVENTS:
            return None, not has_parts
        cameras = selector.select(event.channel, event.properties, cameras)
        if acquires(event):
            count += 1
            images += len(cameras)
            indices.add(tuple(sorted(event.index.items())))
    return images, len(indices) == count


def _channel_names(parts: Sequence[MDASequence]) -> tuple[str, ...]:
    """All names, each once, if they are values of the axis; else those of the outer sequence, by channel number."""
    if not all(_are_values(part.channels) for part in parts):
        return tuple(channel.config for channel in parts[0].channels)
    names = dict.fromkeys(channel.config for part in parts for channel in part.channels)
    if names and not parts[0].channels:
        names[NO_CHANNEL] = None
    return tuple(names)


def _are_values(channels: Sequence[Any]) -> bool:
    names = [channel.config for channel in channels]
    return len(set(names)) == len(names) and all(is_axis_text(name) for name in names)


def is_axis_text(name: str) -> bool:
    """True when `name` may be the value of an axis."""
    return 0 < len(name) <= MAX_STRING and name.isprintable()


def _grid_cells(sequence: MDASequence) -> GridCells | None:
    """Cells of all grid plans, or None if one of them has none (random points)."""
    main = () if sequence.grid_plan is None else _cells(sequence.grid_plan)
    by_position: dict[int, tuple[Cell, ...]] = {}
    for number, position in enumerate(sequence.stage_positions):
        if position.sequence is None:
            continue
        if any(part.grid_plan is not None for part in islice(sequence_parts(position.sequence), 1, None)):
            return None  # grids within grids: an index does not identify one
        if position.sequence.grid_plan is not None:
            cells = _cells(position.sequence.grid_plan)
            if cells is None:
                return None
            by_position[number] = cells
    return None if main is None else GridCells(main, by_position)


def _cells(plan: Iterable[Any]) -> tuple[Cell, ...] | None:
    cells: list[Cell] = []
    for point in plan:
        row, column = point.grid_row, point.grid_col
        if row is None or column is None or row < 0 or column < 0:
            return None
        cells.append((int(row), int(column)))
    return tuple(cells) if len(set(cells)) == len(cells) else None


@dataclass(frozen=True, slots=True)
class GridTurn:
    """The way from rows and columns of a plan, which count along the stage, to those of the picture.

    swaps: rows of the plan are columns of the picture. flips, (y, x) of the picture: they count from the other end.
    """

    swaps: bool = False
    flips: tuple[bool, bool] = (False, False)

    @staticmethod
    def of_camera(affine: StageAffine | None) -> GridTurn:
        """The nearest one, as a camera may be turned by any angle.

        Source: row 0 of useq has the largest y of the stage, column 0 the smallest x.
        """
        seen = affine or _PARALLEL
        (right_x, right_y), (down_x, down_y) = seen.to_pixels(1.0, 0.0), seen.to_pixels(0.0, -1.0)
        if abs(right_x * down_y) < abs(right_y * down_x):
            return GridTurn(True, (right_y < 0, down_x < 0))
        return GridTurn(False, (down_y < 0, right_x < 0))

    def turn(self, cells: GridCells) -> GridCells:
        """The cells in the picture; each grid begins at row 0 and column 0."""
        return GridCells(self._turn(cells.main), {key: self._turn(own) for key, own in cells.by_position.items()})

    def _turn(self, cells: Sequence[Cell]) -> tuple[Cell, ...]:
        turned = [cell[::-1] if self.swaps else cell for cell in cells]
        ends = [max((cell[side] for cell in turned), default=0) if self.flips[side] else 0 for side in (0, 1)]
        return tuple((abs(ends[0] - row), abs(ends[1] - column)) for row, column in turned)


@dataclass(frozen=True, slots=True)
class TilePlan:
    """overlap is (y, x) in whole pixels; step, (y, x) in pixels, is the way from tile to tile in the picture."""

    overlap: tuple[int, int]
    step: tuple[float, float]

    def place(self, axes: Mapping[str, Any]) -> dict[str, int]:
        """Metadata keys: the first pixel of a tile in its grid. Rounded here, so that errors do not add up.

        Source: NDTiff metadata keys; viewers use them where all tiles have them.
        """
        return {
            "XPositionPix": round(axes["column"] * self.step[1]),
            "YPositionPix": round(axes["row"] * self.step[0]),
        }


def plan_tiles(
    sequence: MDASequence, plan: SequencePlan, shape: Sequence[int] | None, turn: GridTurn
) -> TilePlan | None:
    """The tiles of `sequence` for images of this shape; None where its frames are not tiles.

    That is without a grid, with random points, with images of unknown size, and with grids that overlap differently,
    as a dataset has one overlap.
    """
    if plan.cells is None or shape is None:
        return None
    grids = [part.grid_plan for part in sequence_parts(sequence) if part.grid_plan is not None]
    overlaps = {tuple(getattr(grid, "overlap", (0.0, 0.0)))[::-1] for grid in grids}
    if len(overlaps) > 1:
        logger.warning(
            "the grids overlap by %s percent: a tiled dataset has one overlap, so this is a flat one", overlaps
        )
        return None
    percent = overlaps.pop()
    if max(percent) >= 100:
        return None
    step = (shape[0] * (1 - percent[0] / 100), shape[1] * (1 - percent[1] / 100))  # as the engine moves the stage
    step = step[::-1] if turn.swaps else step
    # Gaps between tiles, a negative overlap, show in their places only.
    overlap = (max(0, round(shape[0] - step[0])), max(0, round(shape[1] - step[1])))
    return TilePlan(overlap, step) if overlap[0] < shape[0] and overlap[1] < shape[1] else None


def _camera_among(settings: Iterable[Any]) -> str:
    return next((str(value) for device, name, value in settings if (device, name) == ("Core", "Camera")), "")


def _camera_of_channel(core: CMMCorePlus | None, group: str, config: str) -> str:
    return _camera_among(core.getConfigData(group, config)) if core and core.isConfigDefined(group, config) else ""


def _physical_cameras(core: CMMCorePlus | None, label: str) -> Cameras:
    """Source: Multi Camera of Micro-Manager's Utilities: `Physical Camera 1` to 4, which may be `Undefined`."""
    if core is None or label not in core.getLoadedDevices():
        return (label,)
    names = [name for name in core.getDevicePropertyNames(label) if name.startswith("Physical Camera ")]
    labels = (core.getProperty(label, name) for name in sorted(names))
    return tuple(physical for physical in labels if physical not in ("", "Undefined")) or (label,)
