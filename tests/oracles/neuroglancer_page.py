"""A real Neuroglancer in a headless browser, in an environment and processes of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.oracles.webknossos_package import PYTHON, needs_environment

PROGRAM = Path(__file__).with_name("neuroglancer_program.py")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((found for name in BROWSERS if (found := shutil.which(name))), None)
needs_neuroglancer = [
    pytest.mark.skipif(BROWSER is None, reason=f"no browser: none of {', '.join(BROWSERS)} is installed"),
    needs_environment("Neuroglancer"),
]
# The page draws with WebGL, here in software. The other flags keep the browser from using the network.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=800,600",
)
_END_S = 20.0


class NeuroglancerPage:
    """One page that answers as long as the `with` block lasts. folder: for the browser's own files and pictures."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> NeuroglancerPage:
        browser = [str(BROWSER), *_FLAGS, f"--user-data-dir={self._folder / 'browser'}"]
        with (self._folder / "browser.log").open("wb") as log:
            self._process = subprocess.Popen(
                [str(PYTHON), "-I", "-W", "ignore", str(PROGRAM), *browser],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                encoding="utf-8",
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process as process:  # closes its input, so that it ends the browser and itself
            try:
                process.communicate(timeout=_END_S)
            except subprocess.TimeoutExpired:
                process.kill()

    def plane(
        self,
        source: str,
        dimensions: Mapping[str, tuple[float, str]],
        place: Mapping[str, int],
        shape: Sequence[int],
        *,
        zoom: int = 1,
        begin: float = 0.0,
        local: Mapping[str, int] | None = None,
    ) -> NDArray[Any]:
        """The items (y, x), uint16, that the page shows of a plane of this shape at this place.

        dimensions: the length of an item of the full resolution, and its unit; zoom: items of it for each pixel; begin:
        where item 0 begins, in items: -0.5 if 0 is its centre; local: the place along dimensions of the layer alone.
        """
        height, width = shape
        centre = {"x": width * zoom / 2, "y": height * zoom / 2, **{name: at + 0.5 for name, at in place.items()}}
        centre = {name: at + begin for name, at in centre.items()}
        position = [centre[name] for name in dimensions]
        view = {"dimensions": dimensions, "position": position, "zoom": zoom, "local": local or {}}
        shot = self._folder / "shot.png"
        self._ask("show", source, view, [width, height], str(shot))
        with Image.open(shot) as image:
            pixels = np.asarray(image.convert("RGB")).astype(np.uint16)
        found: NDArray[Any] = pixels[..., 0] << 8 | pixels[..., 1]
        return found

    def state(self, state: Mapping[str, Any], shape: Sequence[int]) -> NDArray[np.uint8]:
        """What the page shows of a state, (y, x, 3), on a screen of this shape."""
        shot = self._folder / "shot.png"
        self._ask("show_state", state, [shape[1], shape[0]], str(shot))
        with Image.open(shot) as image:
            return np.asarray(image.convert("RGB"))

    def _ask(self, *words: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the process ended: {(self._folder / 'browser.log').read_text()[-2000:]}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        found: dict[str, Any] = answer["found"]
        return found
