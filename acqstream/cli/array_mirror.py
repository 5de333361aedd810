"""`acqstream mirror` of an array: from one chunk format into another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from acqstream.cli.exit_code import ExitCode
from acqstream.cli.output import print_json, progress_bar
from acqstream.errors import ConfigError
from acqstream.model.units import count_text
from acqstream.model.view_spec import ViewSpec

if TYPE_CHECKING:
    from acqstream.formats.chunk_format import ChunkFormat


def mirror_array(
    path: Path,
    source_format: ChunkFormat[Any],
    out: Path | None,
    spec: ViewSpec,
    *,
    memory_mb: int,
    rebuild: bool,
    check: bool,
    as_json: bool,
) -> None:
    """Copy the array at `path`, in `source_format`, and print what came of it. spec names the new format."""
    from acqstream.formats.registry import chunk_format, chunk_format_names
    from acqstream.mirrors.array_copy import compare_copy, copy_array
    from acqstream.mirrors.chunk_plan import Budget, options_of
    from acqstream.mirrors.comparison import LOSSY_TEXT
    from acqstream.storage.stores.data_path import place_of

    settings = spec.mirror_settings
    name = str(settings["format"])
    try:
        target = chunk_format(name)
    except KeyError as error:
        reason = "needs frames" if not spec.is_mirror else "is not known"
        text = f"{name!r} {reason}; {path} is an array in {source_format.name}, for {', '.join(chunk_format_names())}"
        raise typer.BadParameter(text, param_hint="--to") from error
    settings = {**target.options_of_copies, **settings}
    try:
        is_lossy = target.is_lossy(options_of(target, settings))
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--to and its options") from error
    if "tiles" in settings:
        raise typer.BadParameter("an array is copied as it is stored; tiles are those of frames", param_hint="--tiles")
    container = out or container_beside(path, source_format, target)
    if container.resolve() == source_format.folder(place_of(path)).path.resolve():
        raise typer.BadParameter(f"{container} is the source itself: name another folder", param_hint="OUT")
    budget = Budget.of(memory_mb)
    with progress_bar() as bar:
        task = bar.add_task(f"{path.name} to {target.name}", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        copied = copy_array(
            path, source_format, target, container, settings, budget=budget, is_remade=rebuild, on_progress=show
        )
        compares = check and not is_lossy
        n_planes, n_different = compare_copy(path, source_format, target, container, show) if compares else (0, 0)
    result = {
        "path": str(container),
        "state": "complete",
        "axes": list(copied.levels[0].axes),
        "levels": [list(level.shape) for level in copied.levels],
        "stored_chunks": copied.stored_chunks,
        "warning": copied.warning,
        **({"compared": n_planes, "different": n_different} if check else {}),
        **({"not_compared": LOSSY_TEXT} if check and is_lossy else {}),
    }
    if as_json:
        print_json(result)
    else:
        print(f"{container}: complete, {count_text(copied.stored_chunks, 'chunk')} stored")
        if copied.warning:
            print(f"warning: {copied.warning}")
        if check and is_lossy:
            print(f"not compared: {LOSSY_TEXT}")
        elif check:
            text = f"{n_different} DIFFERENT" if n_different else "all equal"
            print(f"compared {count_text(n_planes, 'plane')} with the source: {text}")
    if n_different:
        raise typer.Exit(ExitCode.INCOMPLETE)


def container_beside(path: Path, source_format: ChunkFormat[Any], target: ChunkFormat[Any]) -> Path:
    """The folder of a copy: cells.n5 becomes cells.wkw."""
    from acqstream.storage.stores.data_path import place_of

    source = source_format.folder(place_of(path)).path.absolute()
    stem = source.name.removesuffix(source_format.suffix)
    middle = f".{source_format.name}" if source_format.suffix == target.suffix else ""
    return source.with_name(f"{stem}{middle}{target.suffix}")
