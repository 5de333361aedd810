"""Measurements for developers; those for users are `acqstream bench`.

    .venv/bin/python tools/measure.py latency|steady|growth|pyramid|web|peers|plot [--bytes SIZE] [--pairs N]
        [--rows NAME,...] [--dir DIR] [--memory-mb N] [--seconds S] [--mirrors NAME,...] [--out FILE] [--json]

docs/performance.md says what each measures. The exit codes are those of `acqstream bench`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for acqstream

from acqstream.bench.child_process import cleaned_up_if_interrupted
from acqstream.bench.comparison import USUAL_ROWS, BenchSettings
from acqstream.cli.bench import bytes_of, names_of, print_bench_report
from acqstream.cli.output import error_line, exit_code_of, print_json, progress_bar
from acqstream.errors import AcqStreamError
from bench.delay import DelayPlan, run_delay_benchmark
from bench.growth import run_growth_benchmark
from bench.http_frames import run_web_benchmark
from bench.mirror_peers import run_peers_benchmark
from bench.plot import run_plotted_benchmark
from bench.pyramid import run_pyramid_benchmark
from bench.steady import SteadyPlan, run_steady_benchmark

MEASUREMENTS: dict[str, Any] = {
    "latency": lambda given: partial(run_delay_benchmark, plan=DelayPlan(seconds=given.seconds or 20.0)),
    "steady": lambda given: partial(run_steady_benchmark, plan=SteadyPlan(seconds=given.seconds or 60.0)),
    "growth": lambda given: run_growth_benchmark,
    "pyramid": lambda given: run_pyramid_benchmark,
    "web": lambda given: run_web_benchmark,
    "peers": lambda given: partial(run_peers_benchmark, names=names_of(given.mirrors)),
    "plot": lambda given: partial(run_plotted_benchmark, path=given.out),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measurement", choices=MEASUREMENTS)
    parser.add_argument("--bytes", dest="size", type=bytes_of, default=10**9, help="pixels of one run, e.g. 500MB")
    parser.add_argument("--pairs", type=int, default=1, help="runs of each row")
    parser.add_argument("--rows", type=names_of, default=USUAL_ROWS, help="which rows or transports, e.g. shm,tcp")
    parser.add_argument("--dir", type=Path, default=Path(), help="folder to write to")
    parser.add_argument("--memory-mb", type=int, help="memory of the daemon")
    parser.add_argument("--seconds", type=float, help="duration of latency (20) and steady (60)")
    parser.add_argument("--mirrors", help="which rows of peers")
    parser.add_argument("--out", type=Path, default=Path("rates.svg"), help="picture of plot, .svg or .png")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    given = parser.parse_args(arguments)
    settings = BenchSettings(
        directory=given.dir,
        payload_bytes=given.size,
        pairs=given.pairs,
        rows=given.rows,
        daemon_memory_mb=given.memory_mb,
    )
    try:
        with cleaned_up_if_interrupted(), progress_bar() as bar:
            task = bar.add_task("starting", total=None)
            report = MEASUREMENTS[given.measurement](given)(
                settings, lambda text, done, total: bar.update(task, description=text, completed=done, total=total)
            )
    except AcqStreamError as error:
        print(error_line(error), file=sys.stderr)
        return exit_code_of(error)
    if given.json:
        print_json(report.as_dict())
    else:
        print_bench_report(report, settings.payload_bytes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
