"""A headless Chromium, driven by its DevTools protocol over a web socket.

Source: the protocol's own pages (chromedevtools.github.io), domains Page, Runtime, Input, Emulation, Network.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import subprocess
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import aiohttp

from tests.oracles.neuroglancer_page import BROWSER
from tests.waiting import WAIT_S, until

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
_KEYS = {" ": "Space", "ArrowLeft": "ArrowLeft", "ArrowRight": "ArrowRight", "PageUp": "PageUp", "PageDown": "PageDown"}
_END_S = 20.0
_T = TypeVar("_T")


class ChromiumPage:
    """One page as long as the `with` block lasts. folder: for the browser's own files; flags: of the browser.

    requests: addresses asked for.
    errors: texts of errors on the page's console, and of exceptions in its scripts.
    """

    def __init__(self, folder: Path, width: int = 1280, height: int = 800, flags: Sequence[str] = _FLAGS) -> None:
        self._folder = folder
        self._flags = flags
        self._size = (width, height)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._of_page: dict[str, str] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="browser", daemon=True)
        self.requests: list[str] = []
        self.errors: list[str] = []

    def __enter__(self) -> ChromiumPage:
        self._thread.start()
        profile = self._folder / "browser"
        with (self._folder / "browser.log").open("wb") as log:
            command = self._command_line(profile)
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until(lambda: self._address(profile) != "", "the browser listens")
        self._run(self._connect(self._address(profile)))
        self.resize(*self._size)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._disconnect())
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        return self._run(self._send(method, parameters))

    def open(self, url: str) -> None:
        """Load a page and wait until its script has run."""
        self.command("Page.navigate", url=url)
        until(lambda: self.value("document.readyState") == "complete", "the page is loaded")

    def value(self, expression: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        result = self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def text(self, selector: str) -> str:
        """The text that is shown of an element; "" without one."""
        return str(self.value(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def press(self, key: str, *, is_shifted: bool = False) -> None:
        """Press and release a key."""
        text = {"text": key} if len(key) == 1 else {}
        code = {"code": _KEYS[key]} if key in _KEYS else {}
        modifiers = {"modifiers": 8} if is_shifted else {}
        self.command("Input.dispatchKeyEvent", type="keyDown", key=key, **code, **text, **modifiers)
        self.command("Input.dispatchKeyEvent", type="keyUp", key=key, **code, **modifiers)

    def point(self, x: float, y: float) -> None:
        """Move the mouse to a place of the viewport, in pixels from its top left corner."""
        self.command("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def drag(self, kind: str, x: float, y: float, button: str = "left", buttons: int = 1) -> None:
        """One part of a drag: kind is "mousePressed", "mouseMoved" or "mouseReleased"; buttons: those held, as bits."""
        more = {"button": button, "buttons": buttons, "clickCount": 1}
        self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def wheel(self, x: float, y: float, dy: float) -> None:
        """Turn the wheel over a place of the viewport."""
        self.command("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=dy)

    def reload(self) -> None:
        self.command("Page.reload")

    def touch(self, x: float, y: float) -> None:
        """Touch a place of the viewport with a finger, and lift it."""
        self.command("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.command("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def resize(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.command("Emulation.setDeviceMetricsOverride", **metrics)

    def screenshot(self, path: Path, *, is_complete: bool = False) -> None:
        """Write what the page shows as a PNG; is_complete: all of the page."""
        shot = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=is_complete)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _run(self, action: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(action, self._loop).result(4 * WAIT_S)

    def _command_line(self, profile: Path) -> list[str]:
        return [str(BROWSER), *self._flags, f"--user-data-dir={profile}", "about:blank"]

    def _address(self, profile: Path) -> str:
        """Where the browser listens; "" until it does."""
        port_file = profile / "DevToolsActivePort"
        words = port_file.read_text().split() if port_file.is_file() else []
        return f"ws://127.0.0.1:{words[0]}{words[1]}" if len(words) > 1 else ""

    async def _connect(self, address: str) -> None:
        self._session = aiohttp.ClientSession()
        self._socket = await self._session.ws_connect(address, max_msg_size=2**28)
        self._reading = asyncio.ensure_future(self._read())
        await self._begin()

    async def _begin(self) -> None:
        """Take the page, and have its news sent."""
        targets = await self._send("Target.getTargets", {})
        page = next(one for one in targets["targetInfos"] if one["type"] == "page")
        attached = await self._send("Target.attachToTarget", {"targetId": page["targetId"], "flatten": True})
        self._of_page = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self._send(f"{domain}.enable", {})

    async def _disconnect(self) -> None:
        self._reading.cancel()
        await self._socket.close()
        await self._session.close()

    async def _send(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters, **self._of_page})
        answer = await asyncio.wait_for(self._waiting[number], 2 * WAIT_S)
        assert "error" not in answer, f"{method}: {answer}"
        found: dict[str, Any] = answer["result"]
        return found

    async def _read(self) -> None:
        async for message in self._socket:
            content = json.loads(message.data)
            if "id" in content:
                self._waiting.pop(content["id"]).set_result(content)
            else:
                self._take(content["method"], content["params"])

    def _take(self, method: str, content: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(content["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(content["exceptionDetails"])[:1000])
        elif method == "Log.entryAdded" and content["entry"]["level"] == "error":
            self.errors.append(json.dumps(content["entry"])[:1000])
