"""How long from `put` until a pixel is on the screen of a Neuroglancer that follows the run; a figure, not a test.

    .venv/bin/python -m tests.bench.put_to_pixel [FRAMES]

A daemon, `acqstream web`, the follower with the Python package and a headless Chromium that draws in software run as
processes of their own. A frame of 2048 x 2048 uint16 is put every seven seconds, since
the follower changes what it shows every five; pictures of the middle of the page are
taken all the time. The time of a frame ends when the first picture that shows it was asked for.
"""

from __future__ import annotations

import base64
import io
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import acqstream
from acqstream.bench.producer import serving
from acqstream.web.data import neuroglancer_follower
from bench.http_client import web_server
from tests.oracles.neuroglancer_page import _FLAGS
from tests.oracles.webknossos_package import PYTHON
from tests.web.chromium import ChromiumPage

SHAPE = (2048, 2048)
LEVELS = (9_000, 21_000, 33_000, 45_000, 57_000)  # the grey values of frames in turn
INTERVAL_S = 7.0
FIRST_S = 20.0  # until the first frame is shown, the browser is loading itself
CLIP = {"x": 400, "y": 300, "width": 4, "height": 4, "scale": 1}


def middle_of(page: ChromiumPage) -> tuple[int, ...]:
    """Mean red, green and blue of the middle of the page."""
    shot = page.command("Page.captureScreenshot", format="png", clip=CLIP)
    with Image.open(io.BytesIO(base64.b64decode(shot["data"]))) as image:
        return tuple(int(one) for one in np.asarray(image.convert("RGB")).mean(axis=(0, 1)).round())


def watch(page: ChromiumPage, until_s: float) -> list[tuple[float, tuple[int, ...]]]:
    """Pictures until a time, each with the time at which it was asked for."""
    found = []
    while (asked_s := time.monotonic()) < until_s:
        found.append((asked_s, middle_of(page)))
    return found


def measure(page: ChromiumPage, run: Any, frames: int) -> list[float]:
    """Seconds from the begin of each `put` until its grey value stays on the screen."""
    delays = []
    image = np.empty(SHAPE, np.uint16)
    before = None
    for number in range(frames):
        image[:] = LEVELS[number % len(LEVELS)]
        began_s = time.monotonic()
        run.put(image, time=number + 1)
        pictures = watch(page, began_s + INTERVAL_S)
        shown = pictures[-1][1]
        if shown == before:
            raise SystemExit(f"frame {number + 1} was not shown within {INTERVAL_S} s; the page shows {shown}")
        before = shown
        changed_s = next(
            at_s for n, (at_s, value) in enumerate(pictures) if all(later == shown for _, later in pictures[n:])
        )
        delays.append(changed_s - began_s)
        sys.stdout.write(f"frame {number + 1}: {delays[-1]:.2f} s, {len(pictures)} pictures, shows {shown}\n")
    return delays


def main() -> None:
    frames = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryDirectory() as name,
        serving("ipc", Path(name), 512) as daemon,
        web_server(daemon.data, daemon.endpoint) as (port, _),
        acqstream.create("cells", endpoint=daemon.endpoint) as run,
    ):
        run.put(np.full(SHAPE, 100, np.uint16), time=0)
        program = [str(PYTHON), "-I", "-W", "ignore", str(neuroglancer_follower.__file__)]
        with subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True, bufsize=1) as follower:
            assert follower.stdin is not None
            assert follower.stdout is not None
            follower.stdin.write(f"http://127.0.0.1:{port}/view/cells/state.json\n")
            address = follower.stdout.readline().strip()
            with ChromiumPage(Path(name), 800, 600, flags=(*_FLAGS, "--remote-debugging-port=0")) as page:
                page.open(address)
                watch(page, time.monotonic() + FIRST_S)
                delays = measure(page, run, frames)
            follower.stdin.close()
    rest = sorted(delays)
    sys.stdout.write(
        f"put to pixel, {frames} frames: median {statistics.median(rest):.2f} s, slowest {rest[-1]:.2f} s\n"
    )


if __name__ == "__main__":
    main()
