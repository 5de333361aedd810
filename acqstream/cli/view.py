"""`acqstream view`: look at a dataset."""

from __future__ import annotations

import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from acqstream.cli.output import DatasetArgument, FollowLinksOption

_QTS = ("PyQt6", "PySide6", "PyQt5", "PySide2")


def view(
    path: DatasetArgument,
    *,
    png: Annotated[
        Path | None, typer.Option(help="Write a contact sheet to this file in place of opening a window.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go to the newest frame, again and again.")] = False,
    follow_links: FollowLinksOption = False,
) -> None:
    """Look at a dataset of any format, also while it is written.

    In napari, if it is installed with a Qt and there is a screen; else as a contact sheet, a PNG file that is named.
    """
    from acqstream.dataset.contact_sheet import save_contact_sheet
    from acqstream.dataset.dataset import open_dataset

    if follow and png is not None:
        raise typer.BadParameter("a file follows nothing; leave --png out", param_hint="--follow")
    reason = "" if png is not None else why_no_window()
    if png is None and not reason:
        show_in_napari(path, follow_links=follow_links, follow=follow)
        return
    if reason:
        print(f"no window: {reason}; a contact sheet instead", file=sys.stderr)
    with open_dataset(path, follow_links=follow_links) as dataset:
        file = _temporary_file() if png is None else png
        save_contact_sheet(dataset, file)
    print(file)


def why_no_window() -> str:
    """The reason why napari cannot open a window; empty if it can."""
    from acqstream.storage.platform.capabilities import needs_display_variable

    if find_spec("napari") is None:
        from acqstream.extras import install_command

        return f"napari is not installed ({install_command('napari')} and a Qt, such as PyQt6)"
    if not any(find_spec(name) for name in _QTS):
        return f"napari has no Qt (pip install one of {', '.join(_QTS)})"
    if needs_display_variable() and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return "this session has no screen (neither DISPLAY nor WAYLAND_DISPLAY is set)"
    return ""


def show_in_napari(path: Path, *, follow_links: bool, follow: bool = False) -> None:
    """Open a window and wait until it is closed. A timer keeps the layers up to date."""
    import napari

    from acqstream.dataset.napari_live import show_layers

    show_layers(napari.Viewer(), path, follow_links=follow_links, follow=follow)
    napari.run()


def _temporary_file() -> Path:
    descriptor, name = tempfile.mkstemp(prefix="acqstream-", suffix=".png")
    os.close(descriptor)
    return Path(name)
