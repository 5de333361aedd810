"""Prints which kinds of runs give the same array in which formats: `python -m tests.conformance.one_array_table`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.frame_runs import RUNS, FrameRun
from tests.conformance.test_one_array import FORMATS, check_mirror, expected_array


def result(run: FrameRun, name: str, *, is_live: bool) -> str:
    """Return "equal", "refused", or what differs."""
    with tempfile.TemporaryDirectory(prefix="acqstream-table-") as folder:
        try:
            return "refused" if check_mirror(Path(folder), run, name, is_live=is_live) else "equal"
        except AssertionError as error:
            return f"DIFFERS: {str(error).splitlines()[0]}"


def table() -> Iterator[str]:
    """Yield the lines of a table in Markdown: a mirror made afterwards, and one made while the run goes on."""
    yield " | ".join(["| run", "axes", "shape", *FORMATS, ""])
    yield "|---" * (3 + len(FORMATS)) + "|"
    for run in RUNS:
        axes = ", ".join([*run.values, *("y", "x", "c")[: len(run.shape)]])
        shape = " x ".join(map(str, expected_array(run).shape))
        cells = []
        for name in FORMATS:
            ways = [result(run, name, is_live=is_live) for is_live in (False, True)]
            cells.append(ways[0] if ways[0] == ways[1] else f"{ways[0]}; live: {ways[1]}")
        yield " | ".join([f"| {run.name}", axes, shape, *cells, ""])


if __name__ == "__main__":
    for line in table():
        sys.stdout.write(line.rstrip() + "\n")
        sys.stdout.flush()
