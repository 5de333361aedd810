"""Finished runs with mirrors beside them, as a daemon leaves them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from acqstream.model.view_spec import ViewSpec
from tests.log.make_frames import frame_of, write_log
from tests.mirrors.mirror_cases import PLAIN, finish, run_of

LONG_AGO_S = 1_700_000_000.0


def make_run(
    folder: Path,
    *,
    mirror: bool = True,
    count: int = 2,
    settings: Any = PLAIN,
    mirror_name: str = "n5",
    **spec: Any,
) -> Path:
    """A complete run of `count` frames, by default with an N5 mirror that was requested."""
    frames = [frame_of(n, (8, 9), axes={"time": n, "channel": "DAPI"}) for n in range(count)]
    if mirror:
        spec.setdefault("views", (ViewSpec(settings["format"], settings, mirror_name),))
    write_log(folder, frames, name=folder.name, **spec)
    if mirror:
        finish(run_of(folder, settings, mirror_name))
    return folder


def make_old(top: Path) -> None:
    """Set all times below `top` back: what changed lately is not kept in an index."""
    for folder, folders, names in os.walk(top):
        for name in (*folders, *names):
            os.utime(os.path.join(folder, name), (LONG_AGO_S, LONG_AGO_S), follow_symlinks=False)


def copy_runs(run: Path, count: int) -> None:
    """Copies `run-1` and so on, beside a run and with its parts."""
    parts = [one for one in run.parent.iterdir() if one.name == run.name or one.name.startswith(f"{run.name}.")]
    for number in range(1, count):
        for part in parts:
            name = part.name.replace(run.name, f"{run.name}-{number}", 1)
            shutil.copytree(part, run.parent / name, copy_function=shutil.copy2)


def content(top: Path) -> dict[str, bytes]:
    """All files below `top` by path, without lock files."""
    return {
        path.relative_to(top).as_posix(): path.read_bytes()
        for path in sorted(top.rglob("*"))
        if path.is_file() and not path.is_symlink() and path.name != ".acqstream.lock"
    }
