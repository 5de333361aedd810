"""`acqstream mirror`: make or catch up a view of a dataset, without a daemon; or copy an array into another format."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acqstream.cli.output import DatasetArgument, ExitCode, JsonOption, print_json, print_made, progress_of
from acqstream.errors import ConfigError, DatasetLocked
from acqstream.model.units import count_text
from acqstream.model.view_spec import LOG_VIEW_KINDS, ViewSpec

if TYPE_CHECKING:
    from acqstream.formats.chunk_format import ChunkFormat
    from acqstream.mirrors.comparison import Comparison
    from acqstream.mirrors.task_runner import TaskRunner
    from acqstream.views.view_run import ViewRun


_INNER = {"peak_slabs"}  # of a summary: for --json
CLUSTER_THREADS = 2  # of a part that a worker of a cluster makes: one encodes while another stores


def mirror(  # noqa: PLR0913 - one parameter per option
    path: DatasetArgument,
    out: Annotated[
        Path | None, typer.Argument(help="Folder of a mirror [default: beside the dataset].", show_default=False)
    ] = None,
    *,
    to: Annotated[
        str, typer.Option(help=f"What to make: a chunk format such as n5 or ome-zarr, or {', '.join(LOG_VIEW_KINDS)}.")
    ],
    follow: Annotated[bool, typer.Option(help="Go on while the dataset is being written.")] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make a mirror, or a pyramid, again from the start.")
    ] = False,
    compression: Annotated[
        str | None, typer.Option(help="Codec of the chunks: a name, or a JSON object.", show_default=False)
    ] = None,
    blocks: Annotated[
        str | None, typer.Option(metavar="Z,Y,X", help="Extents of a block of N5.", show_default=False)
    ] = None,
    chunks: Annotated[
        str | None, typer.Option(metavar="Z,Y,X", help="Extents of a chunk of OME-Zarr.", show_default=False)
    ] = None,
    tiles: Annotated[
        str | None,
        typer.Option(help="Tiles as one picture (stitched) or an image each (separate).", show_default=False),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Another option of the format; may be repeated.")
    ] = None,
    memory_mb: Annotated[int, typer.Option(min=16, help="Memory for chunks, in MiB, of each process.")] = 1024,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1, max=1024, help="Make a mirror in so many processes [default: in this one].", show_default=False
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Make it on a Dask cluster, e.g. tcp://host:8786.", show_default=False),
    ] = None,
    check: Annotated[bool, typer.Option(help="Compare every frame with the mirror at the end.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Make a view of a dataset beside it, or catch one up.

    It resumes where it was stopped or killed, and takes every frame once. A chunk format (n5) gets a mirror: all frames
    as one array cut into chunks, with resolution levels. `null` stores no frames: it counts them and sums their pixels.
    With --processes or --scheduler parts of a mirror are made side by side, of a dataset that does not grow. Workers of
    a cluster need dataset and mirror by the same path as this machine. Parts made before an interruption stay.

    PATH may also be an array in a chunk format: level 0 is copied, and lower levels are computed again.

    `pyramid` adds resolution levels to a tiled NDTiff dataset, of any program; levels that another program has made are
    replaced with --rebuild only, once the new ones are complete.
    """
    from acqstream.formats.chunk_format import ChunkFormat
    from acqstream.formats.registry import find_format
    from acqstream.mirrors.mirror_view import KEPT_BYTES
    from acqstream.storage.platform import keep_large_blocks

    keep_large_blocks(KEPT_BYTES)
    spec = ViewSpec(to, _settings(to, compression, {"blocks": blocks, "chunks": chunks}, tiles, option or []))
    found = find_format(path)  # reports what is wrong with the path
    out = _named(out)
    if isinstance(found, ChunkFormat):
        if follow or processes is not None or scheduler is not None:
            raise typer.BadParameter(
                "an array is copied once it is complete, by one process",
                param_hint="--follow, --processes, --scheduler",
            )
        mirror_array(path, found, out, spec, memory_mb=memory_mb, rebuild=rebuild, check=check, as_json=as_json)
        return
    with ExitStack() as stack:
        runner = _make_runner(processes, scheduler)
        if runner is not None:
            _check_parallel(path, spec, follow=follow)
            stack.enter_context(runner)
        run = _make_run(path, out, spec, memory_mb=memory_mb, rebuild=rebuild, runner=runner)
        try:
            _run(run, follow=follow)
        finally:
            run.close()
        compared = _compare(run, runner) if check and "container" in run.view.summary() else None
    if as_json:
        done = run.progress()
        result = {"path": str(run.folder), "state": str(done.state), "frames": done.cursor, "of": done.count}
        if compared is not None:
            result |= {"compared": compared.frames, "different": compared.different}
            result |= {"not_compared": compared.reason} if compared.reason else {}
        print_json({**result, "reason": run.reason, "warning": done.warning, "result": run.view.summary()})
    else:
        _print_result(run, compared)
    if compared is not None and compared.different:
        raise typer.Exit(ExitCode.INCOMPLETE)


def _settings(
    to: str, compression: str | None, extents: Mapping[str, str | None], tiles: str | None, options: list[str]
) -> dict[str, Any]:
    settings: dict[str, Any] = {} if tiles is None else {"tiles": tiles}
    if compression is not None:
        settings["compression"] = _value(compression)
    for name, sizes in extents.items():
        if sizes is not None:
            settings[name] = _value(f"[{sizes}]")
    for text in options:
        name, sign, value = text.partition("=")
        if not sign:
            raise typer.BadParameter(f"{text!r} must be NAME=VALUE", param_hint="--option")
        settings[name] = _value(value)
    if settings and to in LOG_VIEW_KINDS:
        raise typer.BadParameter(
            f"{to} has no options", param_hint="--compression, --blocks, --chunks, --tiles, --option"
        )
    return {"format": to, **settings} if settings else {}


def _value(text: str) -> Any:
    """JSON as its value, other text as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _make_runner(processes: int | None, scheduler: str | None) -> TaskRunner | None:
    """The runner of other processes; None to work in this one."""
    if scheduler is None and (processes or 1) == 1:
        return None
    from acqstream.mirrors.task_runner import DaskCluster, ProcessPool, TaskRunner

    if scheduler is None:
        assert processes is not None
        return TaskRunner(partial(ProcessPool, processes), max(1, (os.cpu_count() or 1) // processes))
    if processes is not None:
        raise typer.BadParameter("a cluster has its own number of processes", param_hint="--processes, --scheduler")
    return TaskRunner(partial(DaskCluster, scheduler), CLUSTER_THREADS)


def _check_parallel(path: Path, spec: ViewSpec, *, follow: bool) -> None:
    """Raise BadParameter unless several processes can make this view: of a dataset that is complete."""
    from acqstream.formats.ndtiff.reader import open_readers

    hint = "--processes, --scheduler"
    if not spec.is_mirror:
        raise typer.BadParameter(f"{spec.kind} is made by one process", param_hint=hint)
    if follow:
        raise typer.BadParameter("a dataset that grows is followed by one process", param_hint=f"--follow, {hint}")
    levels = open_readers(path)
    is_complete = levels[0].complete
    for level in levels:
        level.close()
    if not is_complete:
        text = f"{path} is being written, or was cut off: one process makes a mirror of its frames"
        raise typer.BadParameter(text, param_hint=hint)


def _named(out: Path | None) -> Path | None:
    """The folder with its own name: that of "." or ".." depends on where one is. Raises BadParameter for a root."""
    if out is None:
        return None
    folder = Path(os.path.abspath(out))
    if not folder.name:
        raise typer.BadParameter(f"{folder} is no folder of a mirror", param_hint="OUT")
    return folder


def _make_run(
    path: Path,
    out: Path | None,
    spec: ViewSpec,
    *,
    memory_mb: int,
    rebuild: bool,
    runner: TaskRunner | None,
) -> ViewRun:
    from acqstream.formats.ndtiff.folders import container_of
    from acqstream.mirrors.mirror_container import resume_settings
    from acqstream.mirrors.mirror_plan import folder_of
    from acqstream.mirrors.view_worker import view_maker
    from acqstream.views.checkpoint import view_folder
    from acqstream.views.view_run import ViewRun

    if not spec.is_mirror:
        if out is not None:
            raise typer.BadParameter(f"{spec.kind} has its place beside the dataset", param_hint="OUT")
        if rebuild and not spec.is_pyramid:
            text = "mirrors and pyramids; of other views delete what was made"
            raise typer.BadParameter(text, param_hint="--rebuild")
        return ViewRun(path, spec.name, view_maker(spec, is_remade=True) if rebuild else view_maker(spec))
    try:
        threads = None if runner is None else runner.threads
        folder = folder_of(container_of(path), spec) if out is None else view_folder(out, "view")
        if not rebuild:
            spec = replace(spec, settings=resume_settings(folder, spec.mirror_settings))
        make = view_maker(spec, container=out, memory_mb=memory_mb, is_remade=rebuild, runner=runner, threads=threads)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--to and its options") from error
    return ViewRun(path, spec.name, make, folder=folder)


def _run(run: ViewRun, *, follow: bool) -> None:
    """Step until the view is complete; without `follow`, until all frames published now are taken."""
    from acqstream.views.view_run import ViewState

    with progress_of(f"{run.path.name} to {run.name}") as show:
        try:
            while (wait_s := run.step()) is not None:
                now = run.progress()
                show(now.cursor + run.frames_ahead, now.count)
                if now.state is ViewState.LOCKED:
                    raise DatasetLocked(run.reason)
                if now.state is ViewState.WAITING and not follow:
                    break
                time.sleep(wait_s)
        except KeyboardInterrupt:
            run.save()
            raise
        run.settle()


def _compare(run: ViewRun, runner: TaskRunner | None) -> Comparison:
    from acqstream.mirrors.comparison import compare

    with progress_of(f"comparing {run.path.name}") as show:
        return compare(run.path, run.folder, run.progress().cursor, show, runner)


def _print_result(run: ViewRun, compared: Comparison | None) -> None:
    from acqstream.dataset.run_list import disk_bytes

    done = run.progress()
    if run.reason:
        print(run.reason)
    print(f"{run.folder}: {done.state}, {count_text(done.cursor, 'frame')}")
    if done.warning:
        print(f"warning: {done.warning}")
    lines = {name: value for name, value in run.view.summary().items() if name not in _INNER}
    width = max(map(len, ("stored_chunks", *lines))) + 1
    for name, value in lines.items():
        print(f"{name:<{width}}{value}")
    if compared is not None and compared.reason:
        print(f"not compared: {compared.reason}")
    elif compared is not None:
        print(f"{'compared':<{width}}{count_text(compared.frames, 'frame')} with the mirror: {compared.text}")
    if (made := lines.get("container")) is not None:
        _print_made(Path(str(made)))
    elif levels := [run.path / name for name in lines if (run.path / name).is_dir()]:  # of a pyramid
        print_made(run.path, sum(map(disk_bytes, levels)), "acqstream view")


def _print_made(container: Path) -> None:
    from acqstream.dataset.run_list import disk_bytes

    print_made(container, disk_bytes(container), "acqstream view")


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
    from acqstream.mirrors.comparison import LOSSY_TEXT
    from acqstream.mirrors.mirror_plan import Budget, options_of
    from acqstream.storage.stores.data_path import data_path_of

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
    if container.resolve() == source_format.folder(data_path_of(path)).path.resolve():
        raise typer.BadParameter(f"{container} is the source itself: name another folder", param_hint="OUT")
    budget = Budget.of(memory_mb)
    with progress_of(f"{path.name} to {target.name}") as show:
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
        _print_made(container)
    if n_different:
        raise typer.Exit(ExitCode.INCOMPLETE)


def container_beside(path: Path, source_format: ChunkFormat[Any], target: ChunkFormat[Any]) -> Path:
    """The folder of a copy: cells.n5 becomes cells.wkw."""
    from acqstream.storage.stores.data_path import data_path_of

    source = source_format.folder(data_path_of(path)).path.absolute()
    stem = source.name.removesuffix(source_format.suffix)
    middle = f".{source_format.name}" if source_format.suffix == target.suffix else ""
    return source.with_name(f"{stem}{middle}{target.suffix}")
