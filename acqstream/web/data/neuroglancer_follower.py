"""A Neuroglancer on this machine that follows a growing run: a process of its own, with the `neuroglancer` package.

The first line of its input is the address of the state. It prints the address of the viewer, and shows what is new
until its input ends. It follows the newest index until a user moves the viewer away from it. Only the standard library
and `neuroglancer` are imported: the package may live in an environment of its own.

A page that gets another source forgets the picture of the last one at once. So the page first loads the new one out of
sight, for the view that it shows then (`prefetch` of Neuroglancer's configuration), and shows it when the server has
sent all of it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.request
from typing import Any

POLL_S = 0.5
CHANGE_S = 5.0
"""Between two changes of what is shown, at least."""
LEAD_S = 1.5
"""The time that a page usually needs to load a new source: so long before CHANGE_S is over it is looked for."""
PATIENCE_S = 5.0
"""A source that no page asks for so long is shown: no page is open, or none shows any of it."""
_TIMEOUT_S = 10.0
_FOLLOWED = ("t", "z")  # the first of these that a state has grows


def fetch(url: str) -> dict[str, Any] | None:
    """The object at an address now; None if the server does not answer, or has none yet."""
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
    newer = {layer["name"]: layer for layer in new["layers"]}
    known = {layer["name"] for layer in last["layers"]}
    shaders = [layer["shader"] for layer in last["layers"]]
    state["layers"] = [
        *(_renewed(layer, newer.get(layer.get("name")), shaders) for layer in current["layers"]),
        *(layer for name, layer in newer.items() if name not in known),  # one that was removed stays away
    ]
    names = list(new["dimensions"])
    axis = next((names.index(name) for name in _FOLLOWED if name in names), None)
    position = current.get("position")
    if axis is None or not isinstance(position, list) or len(position) != len(new["position"]):
        return state | {"position": new["position"]}
    if round(position[axis]) == round(last["position"][axis]):
        state["position"] = [*position[:axis], new["position"][axis], *position[axis + 1 :]]
    return state


def _renewed(layer: dict[str, Any], newer: dict[str, Any] | None, shaders: list[str]) -> dict[str, Any]:
    """A layer with its new source, and with the new shader if it still has one of `shaders`; another one as it is."""
    if newer is None:
        return layer
    shader = {"shader": newer["shader"]} if layer.get("shader") in shaders else {}
    return {**layer, "source": newer["source"], **shader}


class Follower:
    """Changes what a viewer shows, one state of the server after the other. url: of the state.

    viewer: `neuroglancer.Viewer`.
    """

    def __init__(self, viewer: Any, url: str) -> None:
        self._viewer = viewer
        self._url = url
        self._shown: dict[str, Any] | None = None
        self._next: dict[str, Any] | None = None  # loaded by the page, out of sight
        self._view = ""  # the generation of the viewer's state that it is loaded for
        self._shown_s = self._next_s = 0.0

    def step(self, now_s: float) -> None:
        """Do what is due. now_s: on a clock that never goes back. Call it every POLL_S."""
        if self._next is None:
            self._look(now_s)
        if self._next is not None and self._shown is not None:
            self._change(self._next, self._shown, now_s)

    def _look(self, now_s: float) -> None:
        if self._shown is not None and now_s - self._shown_s < CHANGE_S - LEAD_S:
            return
        new = fetch(self._url)
        if new is None or new == self._shown:
            return
        if self._shown is None:
            self._viewer.set_state(new)
            self._shown, self._shown_s = new, now_s
            return
        self._next, self._next_s, self._view = new, now_s, ""

    def _change(self, new: dict[str, Any], shown: dict[str, Any], now_s: float) -> None:
        """Show the next state if all of it is loaded for the present view, else have it loaded."""
        current, view = self._viewer.shared_state.raw_state_and_generation
        state = merged(current, new, shown)
        if view != self._view:  # at first, and when somebody has moved the view since
            if now_s - self._next_s >= PATIENCE_S:
                self._next = None  # there is a newer one
                return
            with self._viewer.config_state.txn() as config:
                config.prefetch = [{"state": state, "priority": 0}]
            self._view = view
        elif now_s - self._shown_s >= CHANGE_S and self._is_due(new, shown, now_s):
            try:
                self._viewer.shared_state.set_state(state, existing_generation=view)
            except RuntimeError:  # ConcurrentModificationError: the view is being moved, so later
                return
            self._shown, self._shown_s, self._next = new, now_s, None

    def _is_due(self, new: dict[str, Any], shown: dict[str, Any], now_s: float) -> bool:
        """Return True if pages have loaded the next state, and have drawn the last one."""
        loaded = self._is_loaded(new)
        if loaded is None:
            loaded = now_s - self._next_s >= PATIENCE_S
        return loaded and self._is_loaded(shown) is not False

    def _is_loaded(self, state: dict[str, Any]) -> bool | None:
        """True when a page has all that it asked the server for, None if it asked for nothing yet.

        False also while the server does not answer.
        """
        base, _, name = self._url.removesuffix("/state.json").rpartition("/view/")
        source: str = state["layers"][0]["source"]  # all layers have one
        folders, at, last = source.removeprefix(f"{base}/data/").partition("@")  # of the options of an address
        address = f"{folders}{at}{last.partition('/')[0]}".replace("/", "%2F")
        found = fetch(f"{base}/view/{name}/loaded/{address}")
        loaded: bool | None = False if found is None else found.get("loaded")
        return loaded


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
    follower = Follower(viewer, url)
    follower.step(time.monotonic())
    while not ended.wait(POLL_S):
        follower.step(time.monotonic())


if __name__ == "__main__":
    main()
