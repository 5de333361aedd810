"""`acqstream mirror`: make or catch up a view of a dataset, without a daemon."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acqstream.cli.output import print_json, progress_bar
from acqstream.cli.units import count_text
from acqstream.errors import DatasetLocked
from acqstream.model.acquisition_spec import VIEW_NAMES

if TYPE_CHECKING:
    from acqstream.pipeline.views.view import ViewRun


def mirror(
    path: Annotated[Path, typer.Argument(help="A dataset, or a file or level in it.")],
    *,
    to: Annotated[str, typer.Option(help=f"What to make: {', '.join(VIEW_NAMES)}.")],
    follow: Annotated[bool, typer.Option(help="Go on while the dataset is being written.")] = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make all levels of a pyramid again.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Make a view of a dataset beside it, or catch one up.

    It goes on where it was stopped or killed, and takes every frame once. `null` stores no frames: it counts them and
    sums their pixels. `pyramid` adds resolution levels to a tiled NDTiff dataset, of any program; levels that another
    program has made are replaced with --rebuild only, once the new ones are whole.
    """
    from acqstream.formats.registry import find_frame_format
    from acqstream.pipeline.views.pyramid_view import PyramidView
    from acqstream.pipeline.views.registry import VIEWS
    from acqstream.pipeline.views.view import ViewRun

    if to not in VIEWS:
        raise typer.BadParameter(f"{to!r} is not known; {', '.join(VIEWS)} can be made", param_hint="--to")
    if rebuild and to != "pyramid":
        raise typer.BadParameter("a pyramid only; of other views delete what was made", param_hint="--rebuild")
    find_frame_format(path)  # says what is wrong with the path
    make = partial(PyramidView, is_remade=True) if rebuild else VIEWS[to]
    run = ViewRun(path, to, make)
    try:
        _run(run, follow=follow)
    finally:
        run.close()
    done = run.progress()
    if as_json:
        result = {"path": str(run.folder), "state": str(done.state), "frames": done.cursor, "of": done.count}
        print_json({**result, "reason": run.reason, "result": run.view.summary()})
    else:
        _print_result(run)


def _run(run: ViewRun, *, follow: bool) -> None:
    """Until nothing is left to do; without `follow`, until all is taken that is published now."""
    from acqstream.pipeline.views.view import ViewState

    with progress_bar() as bar:
        task = bar.add_task(f"{run.path.name} to {run.name}", total=None)
        try:
            while (wait_s := run.step()) is not None:
                now = run.progress()
                bar.update(task, completed=now.cursor, total=now.count or None)
                if now.state is ViewState.LOCKED:
                    raise DatasetLocked(run.reason)
                if now.state is ViewState.WAITING and not follow:
                    break
                time.sleep(wait_s)
        except KeyboardInterrupt:
            run.save()
            raise
        run.save()


def _print_result(run: ViewRun) -> None:
    done = run.progress()
    if run.reason:
        print(run.reason)
    print(f"{run.folder}: {done.state}, {count_text(done.cursor, 'frame')}")
    for name, value in run.view.summary().items():
        print(f"{name:<14}{value}")
