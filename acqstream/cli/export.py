"""`acqstream export`: one file of another format, made of a dataset."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acqstream.cli.output import JsonOption, print_json, print_made, progress_of
from acqstream.errors import ConfigError
from acqstream.model.units import shell_word

if TYPE_CHECKING:
    from acqstream.export.exporter import ExportReport, Kind

_KINDS = ("hdf5", "ome-tiff", "tiff", "table")
_PROGRAMS = {  # what shows a file here; the packages are those that wrote it
    ".h5": "import h5py, sys; h5py.File(sys.argv[1]).visititems(lambda name, item: print(name, item))",
    ".tif": "import sys, tifffile; print(*tifffile.TiffFile(sys.argv[1]).series, sep=chr(10))",
    ".parquet": "import pyarrow.parquet, sys; print(pyarrow.parquet.read_table(sys.argv[1]))",
    ".csv": "import sys; print(open(sys.argv[1]).read(1000))",
}


def export(
    path: Annotated[str, typer.Argument(help="A dataset in any format: its folder, a file in it, or its URL.")],
    out: Annotated[
        Path | None, typer.Argument(help="The file to write [default: beside the dataset].", show_default=False)
    ] = None,
    *,
    to: Annotated[str, typer.Option(metavar="FORMAT", help=f"Format of the file: {', '.join(_KINDS)}.")],
    copy: Annotated[
        bool, typer.Option("--copy", "--portable", help="hdf5: copy the pixels, so that the file stands alone.")
    ] = False,
    select: Annotated[
        list[str] | None,
        typer.Option(metavar="AXIS=VALUE", help="Take a value, or integers START:STOP; may be repeated."),
    ] = None,
    compression: Annotated[str, typer.Option(help="none, zlib, or for ome-tiff zstd.")] = "none",
    tile: Annotated[int, typer.Option(help="ome-tiff: side of tiles in pixels, a multiple of 16.")] = 512,
    tiles: Annotated[
        str, typer.Option(help="Tiles as one picture (stitched) or an image each (separate).")
    ] = "stitched",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Export a dataset to one file: HDF5, OME-TIFF, a TIFF stack, or a table of its frames.

    `hdf5` writes a small file that refers to the frames in the NDTiff stacks; with --copy it has the pixels themselves.
    `ome-tiff` writes a BigTIFF with resolution levels. `tiff` writes an ordinary stack, an ImageJ hyperstack where that
    fits. `table` writes a row for each frame: axes, time, exposure, stage place, camera, and numbers of the metadata,
    as CSV, or as Parquet if OUT ends with .parquet. The file appears when it is complete. Of a dataset that is being
    written, the frames published now are exported.
    """
    from acqstream.export.exporter import Exporter, ExportRequest, parse_choices
    from acqstream.storage.files.url_path import as_path

    try:
        request = ExportRequest(
            kind=_kind(to),
            is_copy=copy,
            choices=parse_choices(select or []),
            compression=compression,
            tile=tile,
            is_separate=_is_separate(tiles),
            is_replaced=overwrite,
        )
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error
    with progress_of(f"{Path(path).name} to {to}") as show:
        report = Exporter(as_path(path), request, out, show).run()
    if as_json:
        print_json(report)
    else:
        _print_report(report)


def _kind(text: str) -> Kind:
    from acqstream.export.exporter import KINDS

    for kind in KINDS:
        if kind == text:
            return kind
    raise typer.BadParameter(f"{text!r} is not a format of exports; expected {', '.join(KINDS)}", param_hint="--to")


def _is_separate(tiles: str) -> bool:
    if tiles not in ("stitched", "separate"):
        raise typer.BadParameter(f"{tiles!r} must be stitched or separate", param_hint="--tiles")
    return tiles == "separate"


def _print_report(report: ExportReport) -> None:
    shape = ", ".join(f"{name} {size}" for name, size in zip(report.axes, report.shape, strict=True))
    print(f"shape   {shape}, {report.dtype}")
    if report.images > 1:
        print(f"images  {report.images:,}")
    if len(report.levels) > 1:
        print(f"levels  {', '.join(' x '.join(map(str, shape[:2])) for shape in report.levels)}")
    if report.missing:
        print(f"missing {report.missing:,}: {'without a row' if report.kind == 'table' else 'read as 0'}")
    for note in report.notes:
        print(f"note: {note}")
    print_made(Path(report.path), report.size_bytes, _opening_command(report))


def _opening_command(report: ExportReport) -> str:
    """What opens the file: napari where it has a window and reads the format, else Python, which prints what it has."""
    from acqstream.cli.view import why_no_window

    suffix = {"hdf5": ".h5", "table": ".csv"}.get(report.kind, ".tif")
    if suffix == ".tif" and not why_no_window():
        return "napari"
    if report.path.endswith(".parquet"):
        suffix = ".parquet"
    # PowerShell takes a program in quotes as a text
    python = sys.executable if re.fullmatch(r"[\w.:/\\-]+", sys.executable) else shell_word(sys.executable)
    return f'{python} -c "{_PROGRAMS[suffix]}"'
