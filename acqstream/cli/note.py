"""`acqstream note`: add a note to a run that is recorded now, or to a dataset in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acqstream.cli.endpoint import DataOption, EndpointOption, endpoint_for
from acqstream.cli.output import typed_text
from acqstream.errors import AcquisitionRefused, DaemonUnavailable, FileMissing, UnknownFormat

if TYPE_CHECKING:
    from acqstream.model.run_note import RunNote


def note(
    name: Annotated[str, typer.Argument(help="A running acquisition, see acqstream status; or a dataset's folder.")],
    text: Annotated[str, typer.Argument(help="The note, 1 to 1000 characters.")],
    *,
    endpoint: EndpointOption = None,
    data: DataOption = None,
) -> None:
    """Add a note to a run, such as "drug added".

    It is stored with its time and the number of the next frame. acqstream info shows it.
    """
    from acqstream.model.dataset_name import name_problem, normal_name
    from acqstream.model.run_note import TERMINAL, new_note

    name, one = typed_text(name), new_note(typed_text(text), TERMINAL)
    path = Path(name) if data is None else data / name
    if not name_problem(normal_name(name)):  # a run that is recorded now comes before a folder of its name here
        try:
            _send(name, one, endpoint_for(endpoint, data))
            return
        except DaemonUnavailable:
            if not path.exists():
                raise
        except AcquisitionRefused as error:
            if error.code != "unknown_ds":
                raise
            if not path.exists():
                advice = "a run that has ended is named by the path of its folder"
                raise AcquisitionRefused(f"{error}; {advice}", code=error.code) from error
    folder = _dataset_folder(path)
    if _is_running(folder):
        from acqstream.mirrors.run_end import data_directory_of

        top = data_directory_of(folder) or folder.parent
        from_there = endpoint is None and data is None
        _send(folder.relative_to(top).as_posix(), one, endpoint_for(endpoint, top if from_there else data))
        return
    from acqstream.log.dataset_files import NoteFile
    from acqstream.storage.files.disk import LocalDisk

    NoteFile(LocalDisk(), str(folder), attempts=1000).add(one)
    print(f"noted in {folder}, after the run: {one.content}")


def _send(name: str, one: RunNote, endpoint: str | None) -> None:
    from acqstream.client.daemon_requests import send_note

    stored = send_note(name, one, endpoint)
    print(f"noted in {stored.path}, before frame {stored.frame or 0:,}: {one.content}")


def _dataset_folder(path: Path) -> Path:
    """The folder with the frames of the dataset at this path."""
    from acqstream.formats.ndtiff.folders import container_of, is_ndtiff

    if not path.exists() or not is_ndtiff(path):
        raise UnknownFormat(f"{path} is not an NDTiff dataset; notes lie beside the frames of a run")
    return container_of(path).absolute()


def _is_running(folder: Path) -> bool:
    from acqstream.log.state_file import read_state

    try:
        return read_state(str(folder)).state.writing
    except FileMissing:  # of another writer
        return False
