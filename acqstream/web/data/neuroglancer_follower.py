"""A Neuroglancer on this machine that follows a growing run: a process of its own, with the `neuroglancer` package.

The first line of its input is the address of the state. It prints the address of the viewer, then asks for the state
twice a second and shows what is new, until its input ends. It
follows the newest index until a user moves the viewer away from it. Only the standard library and
`neuroglancer` are imported: the package may live in an environment of its own.
"""

from __future__ import annotations

import json
import sys
import threading
import urllib.request
from typing import Any

POLL_S = 0.5
_TIMEOUT_S = 10.0
_FOLLOWED = ("t", "z")  # the first of these that a state has grows


def fetch(url: str) -> dict[str, Any] | None:
    """The state now; None if the server does not answer, or has no array yet."""
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
            found = json.load(answer)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def merged(current: dict[str, Any], new: dict[str, Any], last: dict[str, Any] | None) -> dict[str, Any]:
    """The state to show: new sources and contrast, and the newest index if the viewer still shows the one shown last.

    What the person at the viewer has changed, such as a shader or the place in the picture, stays.
    """
    if last is None or not current.get("layers"):
        return new
    state = dict(current)
    state["dimensions"] = new["dimensions"]
    shaders = [layer["shader"] for layer in last["layers"]]
    state["layers"] = [
        {**layer, "source": newer["source"], "shader": newer["shader"]}
        if layer.get("shader") in shaders
        else {**layer, "source": newer["source"]}
        for layer, newer in zip(_with_new(current["layers"], new["layers"]), new["layers"], strict=True)
    ]
    names = list(new["dimensions"])
    axis = next((names.index(name) for name in _FOLLOWED if name in names), None)
    position = current.get("position")
    if axis is None or not isinstance(position, list) or len(position) != len(new["position"]):
        return state | {"position": new["position"]}
    if round(position[axis]) == round(last["position"][axis]):
        state["position"] = [*position[:axis], new["position"][axis], *position[axis + 1 :]]
    return state


def _with_new(layers: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The layers that the viewer has, and those that have come since, by name."""
    known = {layer.get("name"): layer for layer in layers}
    return [known.get(layer["name"], layer) for layer in new]


def _wait_for_end(ended: threading.Event) -> None:
    """The web process closes the input when it ends, in whatever way."""
    sys.stdin.read()
    ended.set()


def main() -> None:
    """Run the process."""
    import neuroglancer

    url = sys.stdin.readline().strip()
    neuroglancer.set_server_bind_address("127.0.0.1")
    viewer = neuroglancer.Viewer()
    sys.stdout.write(f"{viewer.get_viewer_url()}\n")
    sys.stdout.flush()
    ended = threading.Event()
    threading.Thread(target=_wait_for_end, args=(ended,), daemon=True).start()
    last: dict[str, Any] | None = None
    while not ended.wait(POLL_S if last is not None else 0.05):
        new = fetch(url)
        if new is None or (last is not None and new == last):
            continue
        viewer.set_state(merged(viewer.state.to_json(), new, last))
        last = new


if __name__ == "__main__":
    main()
