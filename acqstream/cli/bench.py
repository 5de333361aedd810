"""`acqstream bench`: how fast this machine writes and reads, next to its limits and to other writers."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acqstream.cli.bench_tables import print_bench_report
from acqstream.cli.output import print_json, progress_bar

if TYPE_CHECKING:
    from acqstream.bench.comparison import BenchSettings, Observer
    from acqstream.bench.report import BenchReport

_SUSTAINED_BYTES, _SUSTAINED_PAIRS = 8_000_000_000, 5
_QUICK_BYTES, _QUICK_PAIRS, _QUICK_FRAMES = 1_000_000_000, 1, 50_000
_QUICK_ROWS = ("ndstorage", "acquire-zarr", "shm", "ipc", "tcp")
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


def bench(  # noqa: PLR0913 - the options of the verb
    *,
    quick: Annotated[bool, typer.Option("--quick", help="About two minutes; flatters writers that buffer.")] = False,
    size: Annotated[
        str | None,
        typer.Option(
            "--bytes", metavar="SIZE", help="Pixels of one run, e.g. 500MB [default: 8GB; quick, mirror 1GB]."
        ),
    ] = None,
    pairs: Annotated[int | None, typer.Option(min=1, help="Runs of each row [default: 5; quick, mirror 1].")] = None,
    rows: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Which rows, e.g. ndstorage,ipc; ipc-close and ipc-batch only so."),
    ] = None,
    directory: Annotated[
        Path, typer.Option("--dir", help="Folder to write to. The files are deleted afterwards.")
    ] = Path(),
    memory_mb: Annotated[int | None, typer.Option(min=16, help="Memory of the daemon [default: its own].")] = None,
    reading: Annotated[bool, typer.Option("--reading", help="Measure reading instead.")] = False,
    latency: Annotated[bool, typer.Option("--latency", help="Measure put to readable instead.")] = False,
    steady: Annotated[bool, typer.Option("--steady", help="Measure a camera at 0.9 of the rate instead.")] = False,
    growth: Annotated[bool, typer.Option("--growth", help="Measure how cost grows instead.")] = False,
    pyramid: Annotated[bool, typer.Option("--pyramid", help="Measure tiles with and without levels instead.")] = False,
    mirror: Annotated[bool, typer.Option("--mirror", help="Measure mirrors instead; about three minutes.")] = False,
    web: Annotated[bool, typer.Option("--web", help="Measure frames and pieces over HTTP instead.")] = False,
    mirrors: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Which mirrors of --mirror, e.g. n5,wkw; some only so.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Measure all frame sizes instead, and draw; svg or png.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, help="Duration of --steady and --latency [default: 60 and 20, quick 10].")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Measure how fast frames are written here; with an option, what else is to be known.

    Each row runs in turn with the limit of the disk; the time goes from the first frame until all are durable.
    """
    from acqstream.bench.comparison import MAX_FRAMES, ROWS, USUAL_ROWS, BenchSettings
    from acqstream.bench.interruption import cleaned_up_if_interrupted

    names = "--reading, --latency, --steady, --growth, --pyramid, --mirror, --web and --plot"
    _check_one(names, reading, latency, steady, growth, pyramid, mirror, web, plot)
    if mirrors is not None and not mirror:
        raise typer.BadParameter("belongs to --mirror", param_hint="--mirrors")
    if seconds is not None and not (steady or latency):
        raise typer.BadParameter("belongs to --steady or --latency", param_hint="--seconds")
    settings = BenchSettings(
        directory=directory,
        payload_bytes=_bytes(size) if size else (_QUICK_BYTES if quick or mirror else _SUSTAINED_BYTES),
        pairs=pairs or (_QUICK_PAIRS if quick or mirror else _SUSTAINED_PAIRS),
        rows=_rows(rows, tuple(ROWS)) or (_QUICK_ROWS if quick else USUAL_ROWS),
        daemon_memory_mb=memory_mb,
        max_frames=_QUICK_FRAMES if quick else MAX_FRAMES,
    )
    wanted = seconds or (10.0 if quick else None)
    chosen = {"reading": reading, "latency": latency, "steady": steady, "growth": growth, "pyramid": pyramid}
    chosen |= {"mirror": mirror, "web": web}
    what = next((name for name, is_chosen in chosen.items() if is_chosen), "")
    run = _benchmark(what, plot=plot, seconds=wanted, mirrors=_names(mirrors))
    with cleaned_up_if_interrupted(), progress_bar() as bar:
        task = bar.add_task("starting", total=None)
        report = run(
            settings, lambda text, done, total: bar.update(task, description=text, completed=done, total=total)
        )
    if as_json:
        print_json(report.as_dict())
        return
    print_bench_report(report, settings.payload_bytes)
    if quick:
        print(
            "Short runs flatter writers that buffer: the page cache takes the first gigabytes at the speed of memory."
        )


def _benchmark(
    what: str, *, plot: Path | None, seconds: float | None, mirrors: tuple[str, ...]
) -> Callable[[BenchSettings, Observer], BenchReport]:
    """The benchmark of this name; "": writing."""
    if what == "pyramid":
        from acqstream.bench.pyramid import run_pyramid_benchmark

        return run_pyramid_benchmark
    if what == "mirror":
        from acqstream.bench.mirror import run_mirror_benchmark

        return partial(run_mirror_benchmark, names=mirrors)
    if what == "web":
        from acqstream.bench.http_frames import run_web_benchmark

        return run_web_benchmark
    if what == "reading":
        from acqstream.bench.reading import run_reading_benchmark

        return run_reading_benchmark
    if what == "latency":
        from acqstream.bench.delay import DelayPlan, run_delay_benchmark

        return partial(run_delay_benchmark, plan=DelayPlan(seconds=seconds) if seconds else DelayPlan())
    if what == "steady":
        from acqstream.bench.steady import SteadyPlan, run_steady_benchmark

        return partial(run_steady_benchmark, plan=SteadyPlan(seconds=seconds) if seconds else SteadyPlan())
    if what == "growth":
        from acqstream.bench.growth import run_growth_benchmark

        return run_growth_benchmark
    if plot is not None:
        from acqstream.bench.plot import run_plotted_benchmark

        return partial(run_plotted_benchmark, path=plot)
    from acqstream.bench.comparison import run_benchmark

    return run_benchmark


def _check_one(names: str, *given: object) -> None:
    if sum(bool(option) for option in given) > 1:
        raise typer.BadParameter("only one of them at a time", param_hint=names)


def _bytes(text: str) -> int:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]+)?) *([kmg]?)b?", text.strip().lower())
    if match is None or float(match[1]) <= 0:
        raise typer.BadParameter(f"{text!r} is not a size; examples: 8GB, 500MB, 1000000", param_hint="--bytes")
    return int(float(match[1]) * _FACTORS[match[2]])


def _names(text: str | None) -> tuple[str, ...]:
    return () if text is None else tuple(part.strip() for part in text.split(","))


def _rows(text: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    if text is None:
        return ()
    wanted = tuple(part.strip() for part in text.split(","))
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise typer.BadParameter(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}", param_hint="--rows")
    return wanted
