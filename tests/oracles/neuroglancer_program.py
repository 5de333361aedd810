"""Runs in the environment that holds Neuroglancer's Python package, with a browser that shows its page.

The browser's command comes as arguments; the page's address is added to it. Each line of standard input is a JSON list,
the name of a function below and its arguments; each is answered by a line of standard output: {"found": ...}, or
{"error": ...}. Nothing of acqstream is imported here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import neuroglancer

SHADER = """
void main() {
  uint value = toRaw(getDataValue());
  emitRGB(vec3(float(value >> 8u) / 255.0, float(value & 255u) / 255.0, 0.0));
}
"""
SCREENSHOT_S = 60.0  # a page that misses a part waits for ever


def show(viewer: Any, source: str, view: dict[str, Any], size: list[int], out: str) -> dict[str, Any]:
    """Show a plane of an image, and write what the browser shows to the PNG `out`: red and green are high and low byte.

    view: dimensions, name: [length of an item, unit]; position in items; zoom, items per pixel of the screen; local,
    name: position along dimensions of the layer alone.
    """
    names, scales = list(view["dimensions"]), list(view["dimensions"].values())
    dimensions = neuroglancer.CoordinateSpace(
        names=names, units=[unit for _, unit in scales], scales=[length for length, _ in scales]
    )
    with viewer.txn() as state:
        state.dimensions = dimensions
        state.layers.clear()
        local = view["local"]
        state.layers["image"] = neuroglancer.ImageLayer(
            source=source,
            shader=SHADER,
            local_dimensions=neuroglancer.CoordinateSpace(
                names=list(local), units=[""] * len(local), scales=[1] * len(local)
            ),
            local_position=list(local.values()),
        )
        state.layout = "xy"
        state.show_axis_lines = state.show_scale_bar = state.show_default_annotations = False
        state.position = view["position"]
        state.cross_section_scale = view["zoom"]
    return _screenshot(viewer, size, out)


def show_state(viewer: Any, state: dict[str, Any], size: list[int], out: str) -> dict[str, Any]:
    """Show a complete state, and write what the browser shows to the PNG `out`."""
    viewer.set_state(state)
    return _screenshot(viewer, size, out)


def _screenshot(viewer: Any, size: list[int], out: str) -> dict[str, Any]:
    shots: list[Any] = []
    thread = threading.Thread(target=lambda: shots.append(viewer.screenshot(size=size)), daemon=True)
    thread.start()
    thread.join(SCREENSHOT_S)
    if not shots:
        raise TimeoutError(f"no screenshot within {SCREENSHOT_S} s")
    Path(out).write_bytes(shots[0].screenshot.image)
    return {"layers": [one.name for one in shots[0].screenshot.resolution_metadata.layer_resolution_data or []]}


def main() -> None:
    neuroglancer.set_server_bind_address("127.0.0.1")
    viewer = neuroglancer.Viewer()
    browser = subprocess.Popen([*sys.argv[1:], viewer.get_viewer_url()])
    try:
        for line in sys.stdin:
            name, *arguments = json.loads(line)
            try:
                answer: dict[str, Any] = {"found": globals()[name](viewer, *arguments)}
            except Exception as error:  # noqa: BLE001 - the caller raises it
                answer = {"error": f"{type(error).__name__}: {error}"}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    finally:
        browser.terminate()
        browser.wait()


if __name__ == "__main__":
    main()
