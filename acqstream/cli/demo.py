"""`acqstream demo`: all of it once, with a virtual camera, in a folder of the user's own."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from acqstream.model.units import shell_word

_INTERRUPTED = 130
_NEXT = """
Next, type:
  {program} info {mirror}
  {program} verify {dataset}
  {program} simulate --data {folder} --frames 100 --fps 20"""


def demo(
    *,
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Where the new folder acqstream-demo is made.")
    ] = Path(),
) -> None:
    """Show all of it: daemon, virtual camera, live reader, receipt.

    Everything is read back and compared. What was recorded, some 200 MB, stays in a new folder acqstream-demo.
    """
    from acqstream.bench.demonstration import MIRROR, demonstrate, new_folder

    folder = new_folder(directory)
    try:
        dataset = demonstrate(folder, lambda line: print(line, flush=True))
    except KeyboardInterrupt:
        print(f"\nacqstream: interrupted; {folder} has what was recorded until then", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
    print(f"All went well. Remove the folder {folder} when you no longer need it.")
    paths = {"dataset": dataset, "mirror": dataset.with_name(f"{dataset.name}.{MIRROR}"), "folder": folder}
    print(_NEXT.format(program=_program(), **{name: _word(path) for name, path in paths.items()}))


def _program() -> str:
    """How this command is typed here: by its name if the shell finds this same one."""
    own, found = (Path(name).resolve().with_suffix("") for name in (sys.argv[0], shutil.which("acqstream") or "."))
    return "acqstream" if own == found else f"{shell_word(sys.executable)} -m acqstream"


def _word(path: Path) -> str:
    """The path for a shell, relative unless it needs quotation marks: which ones, the drive of Windows shows."""
    plain = path.as_posix()
    return plain if shell_word(plain) == plain else shell_word(str(path.absolute()))
