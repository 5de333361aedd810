"""The long fault runs: each fault many times, seeded; a table of what was acknowledged, lost or wrong.

    python tools/faults.py [--only NAME ...] [--seed N] [--tries N] [--scale 0.1] [--transport NAME] [--json FILE]
                           [--folder DIR]

What each fault does, and what counts as survived: docs/faults.md; the drivers: tests/faults. Exit code 0 if everything
was tried and survived, 1 if something did not survive, 3 if all that was tried survived but some could not be tried.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.metadata
import json
import logging
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for acqstream, and for the drivers

import acqstream
from tests.faults import daemon_kills, full_disks, mirror_kills, power_cuts, producer_kills, recovery_kills, view_kills
from tests.faults.fault_result import FaultResult
from tests.faults.producer_process import TRANSPORTS

EXIT_NOT_SURVIVED = 1
EXIT_NOT_ALL_TRIED = 3
COLUMNS = ("fault", "survived / tried", "frames acknowledged", "frames lost", "wrong frames", "faults delivered")
PACKAGES = ("numpy", "pyzmq", "ndstorage", "tifffile")

Driver = Callable[..., FaultResult]

FAULTS: dict[str, tuple[int, Driver]] = {
    daemon_kills.FAULT: (daemon_kills.TRIES, daemon_kills.run),
    producer_kills.FAULT: (producer_kills.TRIES, producer_kills.run),
    power_cuts.FAULTS["ext4"]: (power_cuts.TRIES, partial(power_cuts.run, kind="ext4")),
    power_cuts.FAULTS["xfs"]: (power_cuts.TRIES, partial(power_cuts.run, kind="xfs")),
    full_disks.FAULT: (full_disks.TRIES, full_disks.run),
    recovery_kills.FAULT: (recovery_kills.TRIES, recovery_kills.run),
    view_kills.FAULT: (view_kills.TRIES, view_kills.run),
    mirror_kills.FAULT: (mirror_kills.TRIES, mirror_kills.run),
}
"""How often each is tried by default (0: as often as it can be), and what does it."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    folder = Path(tempfile.mkdtemp(prefix="faults-", dir=options.folder))
    about = describe(folder)
    print(f"faults with seed {options.seed}, in {folder} ({about['file_system']})", flush=True)
    results = [run_fault(name, options, folder) for name in options.only or FAULTS]
    if all(result.all_survived for result in results):
        shutil.rmtree(folder)  # else the runs that did not survive are there to look at
    print(table(results))
    if options.json is not None:
        rows = [dataclasses.asdict(result) for result in results]
        options.json.write_text(json.dumps({**about, "faults": rows}, indent=2) + "\n", encoding="utf-8")
    return exit_code(results)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(FAULTS), metavar="NAME", help=f"of {', '.join(FAULTS)}")
    parser.add_argument("--seed", type=int, default=None, help="of the first run; default: any, and it is printed")
    parser.add_argument("--tries", type=int, default=None, help="of each fault, in place of its own number")
    parser.add_argument("--scale", type=float, default=1.0, help="part of each fault's own number")
    parser.add_argument("--transport", choices=TRANSPORTS, default=None, help="of all runs; default: all, in turn")
    parser.add_argument("--json", type=Path, default=None, help="write the results to this file too")
    parser.add_argument("--folder", type=Path, default=None, help="where to work; default: the temporary directory")
    options = parser.parse_args(arguments)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**6)
    return options


def run_fault(name: str, options: argparse.Namespace, folder: Path) -> FaultResult:
    usual, driver = FAULTS[name]
    tries = options.tries if options.tries is not None else max(1, round(usual * options.scale)) if usual else 0
    place = folder / str(list(FAULTS).index(name))  # short: sockets lie below it
    place.mkdir()
    print(f"{name}: seed {options.seed}, {tries or 'all'} tries", flush=True)
    transports = {"transports": (options.transport,)} if options.transport and name != recovery_kills.FAULT else {}
    result = driver(options.seed, tries, place, **transports)
    for failure in result.failures:
        print(f"{name} NOT SURVIVED: {failure}", flush=True)
    print(f"{name}: {result.survived} of {result.tried} survived, {result.took_s:.0f} s", flush=True)
    return result


def table(results: Sequence[FaultResult]) -> str:
    rows = [COLUMNS, tuple("---" for _ in COLUMNS)]
    for result in results:
        counts = (result.acknowledged, result.lost, result.wrong, result.delivered)
        rows.append((result.fault, f"{result.survived} / {result.tried}", *(f"{count:,}" for count in counts)))
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines += [f"skipped: {one.fault}, {one.skipped} tries: {one.why_skipped}" for one in results if one.skipped]
    return "\n".join(lines)


def exit_code(results: Sequence[FaultResult]) -> int:
    if not all(result.all_survived for result in results):
        return EXIT_NOT_SURVIVED
    return EXIT_NOT_ALL_TRIED if any(not result.tried for result in results) else 0


def describe(folder: Path) -> dict[str, Any]:
    """Where and with what this was run."""
    inside = [one for one in psutil.disk_partitions(all=True) if folder.is_relative_to(one.mountpoint)]
    file_system = max(inside, key=lambda one: len(one.mountpoint)).fstype if inside else "unknown"
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {"acqstream": acqstream.__version__, "python": platform.python_version(), **versions},
        "kernel": f"{platform.system()} {platform.release()}",
        "processors": os.cpu_count(),
        "file_system": file_system,
    }


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("acqstream").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", module="ndstorage")  # what it says of datasets that were cut off
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # runs end in order: no daemon, no mount is left behind
    sys.exit(main())
