"""`acqstream simulate`: virtual cameras."""

from __future__ import annotations

import json
import logging
import math
import threading
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acqstream.cli.endpoint import EndpointOption, StartingDataOption, check_one
from acqstream.cli.output import ExitCode, JsonOption, print_json, progress_bar, typed_text
from acqstream.model.acquisition_spec import MAX_LEVELS
from acqstream.model.units import count_text, duration_text, rate_text, size_text

if TYPE_CHECKING:
    from acqstream.simulate.axes_counter import AxesCounter, TileScan
    from acqstream.simulate.camera import CameraPlan, CameraResult

_MISSING_SHOWN = 20


class Pattern(StrEnum):
    SCENE = "scene"
    NOISE = "noise"


class Depth(StrEnum):
    UINT8 = "uint8"
    UINT16 = "uint16"


def simulate(  # noqa: PLR0913 - one parameter per option
    *,
    endpoint: EndpointOption = None,
    data: StartingDataOption = None,
    frames: Annotated[
        int | None, typer.Option(min=1, help="Frames of each camera [default: what the axes hold].", show_default=False)
    ] = None,
    shape: Annotated[str, typer.Option(metavar="Y,X[,3]", help="Height and width; Y,X,3 is RGB.")] = "512,512",
    dtype: Annotated[Depth, typer.Option(help="Pixel type.")] = Depth.UINT16,
    fps: Annotated[
        float | None,
        typer.Option(min=0.001, help="Frames per second [default: as fast as it can].", show_default=False),
    ] = None,
    axes: Annotated[
        str,
        typer.Option(metavar="NAME=SIZE|A|B,...", help="Axes, the last counts fastest: time=10,channel=DAPI|FITC,z=5."),
    ] = "time",
    name: Annotated[
        str | None,
        typer.Option(help="Name of the dataset [default: simulated, numbered if taken].", show_default=False),
    ] = None,
    producers: Annotated[int, typer.Option(min=1, max=64, help="Cameras at the same time: NAME-1, NAME-2 ...")] = 1,
    mirror: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMAT", help="Keep a copy: n5, or a JSON object with format and options; may be repeated."
        ),
    ] = None,
    bits: Annotated[
        int | None, typer.Option(min=1, max=16, help="Significant bits [default: all of dtype].", show_default=False)
    ] = None,
    tiles: Annotated[
        str | None,
        typer.Option(metavar="ROWSxCOLUMNS", help="Scan a large sample in tiles, e.g. 5x7.", show_default=False),
    ] = None,
    overlap: Annotated[str, typer.Option(metavar="Y,X", help="Overlap of neighbouring tiles, in pixels.")] = "0,0",
    levels: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_LEVELS, help="Lower resolutions of tiles [default: all].", show_default=False),
    ] = None,
    snake: Annotated[bool, typer.Option("--snake", help="Scan every other row of tiles backwards.")] = False,
    pattern: Annotated[
        Pattern, typer.Option(help="scene: cells that move and divide; noise: faster, every pixel differs.")
    ] = Pattern.SCENE,
    numbered: Annotated[bool, typer.Option("--numbered", help="Burn the frame number into a corner.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Send frames as cameras do.

    Every pixel follows from the frame's axes and its place; tiles are windows of one picture.
    The receipts are printed at the end.
    """
    from acqstream.simulate.camera import CameraPlan, several

    check_one(endpoint, data)
    counter, sides = _axes(axes), _shape(shape, dtype, bits)
    scan = _scan(tiles, overlap, sides, snake=snake)
    if scan is None and levels is not None:
        raise typer.BadParameter("only tiles have levels: add --tiles 5x7", param_hint="--levels")
    if scan is not None and numbered and any(scan.overlap):
        raise typer.BadParameter("overlapping tiles would differ where they overlap", param_hint="--numbered")
    plan = CameraPlan(
        name=typed_text(name or "simulated"),
        endpoint=endpoint,
        frames=_frame_count(frames, counter) if scan is None else _tile_count(frames, counter, scan),
        shape=sides,
        dtype=dtype.value,
        axes=counter,
        fps=fps,
        bits=bits,
        mirrors=tuple(map(_mirror, mirror or ())),
        number_if_taken=name is None,
        tiles=scan,
        levels=levels,
        data=data,
        pattern=pattern.value,
        is_numbered=numbered,
    )
    results = _run(several(plan, producers))
    if as_json:
        print_json([_document(result) for result in results])
    else:
        for result in results:
            _print_result(result)
    if len(results) < producers or not all(result.receipt.complete for result in results):
        raise typer.Exit(ExitCode.INCOMPLETE)


def _run(plans: list[CameraPlan]) -> list[CameraResult]:
    from acqstream.simulate.camera import run_cameras

    # Silences the client's log: errors and results repeat it, and its lines would break the progress display.
    logging.getLogger("acqstream.client").addHandler(logging.NullHandler())
    with progress_bar() as bar:
        tasks = {plan.name: bar.add_task(plan.name, total=plan.frames) for plan in plans}
        lock = threading.Lock()

        def show(name: str, sent: int, published: int) -> None:
            with lock:
                bar.update(tasks[name], completed=published, description=f"{name}: {sent:,} sent, published")

        return run_cameras(plans, None if bar.disable else show)


def _axes(text: str) -> AxesCounter:
    from acqstream.simulate.axes_counter import parse_axes

    try:
        return parse_axes(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--axes") from error


def _shape(text: str, dtype: Depth, bits: int | None) -> tuple[int, ...]:
    from acqstream.model.frame_header import pixel_type_of

    try:
        shape = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} must be Y,X or Y,X,3, e.g. 512,512", param_hint="--shape") from error
    try:
        pixel_type_of("|u1" if dtype is Depth.UINT8 else "<u2", shape, bits)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--shape, --dtype, --bits") from error
    return shape


def _frame_count(frames: int | None, counter: AxesCounter) -> int:
    if frames is None and counter.count is None:
        raise typer.BadParameter("pass --frames, or give every axis a size: --axes time=100", param_hint="--frames")
    if frames is not None and counter.count is not None and frames > counter.count:
        raise typer.BadParameter(
            f"{count_text(frames, 'frame')}, "
            f"but the axes hold {counter.count}; make the first axis larger or leave its size out",
            param_hint="--frames",
        )
    return frames or counter.count or 0


def _mirror(text: str) -> str | dict[str, Any]:
    if not text.startswith("{"):
        return text
    try:
        settings: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a JSON object: {error}", param_hint="--mirror") from error
    return settings


def _scan(grid: str | None, overlap: str, shape: tuple[int, ...], *, snake: bool) -> TileScan | None:
    from acqstream.simulate.axes_counter import TileScan, parse_grid, parse_overlap

    if grid is None:
        return None
    try:
        return TileScan(*parse_grid(grid), parse_overlap(overlap, shape), snake)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--tiles, --overlap") from error


def _tile_count(frames: int | None, counter: AxesCounter, scan: TileScan) -> int:
    """As many scans as the axes hold, one where the first axis has no size; or the frames asked for."""
    most = None if counter.count is None else counter.count * scan.count
    if frames is not None and most is not None and frames > most:
        text = f"{count_text(frames, 'frame')}, but axes and tiles hold {most}; leave the size of the first axis out"
        raise typer.BadParameter(text, param_hint="--frames")
    return frames or most or math.prod(axis.size or 1 for axis in counter.axes) * scan.count


def _document(result: CameraResult) -> dict[str, object]:
    return {
        "name": result.name,
        "seconds": result.seconds,
        "sent": result.sent,
        "late_frames": result.late_frames,
        "warnings": result.warnings,
        "complete": result.receipt.complete,
        "receipt": result.receipt.as_dict(),
    }


def _print_result(result: CameraResult) -> None:
    receipt = result.receipt
    print(
        f"{result.name}: {receipt.sentence}; {receipt.stored:,} of {count_text(result.sent, 'frame')} stored, "
        f"{size_text(receipt.payload_bytes)} in {duration_text(result.seconds)} "
        f"({rate_text(receipt.payload_bytes / max(result.seconds, 1e-9))})"
    )
    print(f"  in {receipt.path}")
    if result.late_frames:
        print(f"  {count_text(result.late_frames, 'frame')} came later than the rate asks for")
    for warning in result.warnings:
        print(f"  warning {warning}")
    for missing in receipt.missing[:_MISSING_SHOWN]:
        print(f"  missing: {missing.first} to {missing.first + missing.count - 1}: {missing.reason}")
    if len(receipt.missing) > _MISSING_SHOWN:
        print(f"  missing: {count_text(len(receipt.missing) - _MISSING_SHOWN, 'more range')}, see receipt.json")
    for name, state in receipt.mirrors.items():
        print(f"  mirror {name}: {state}")
