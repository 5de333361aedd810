"""A headless Firefox with the calls of `ChromiumPage`, driven by WebDriver BiDi over a web socket.

Source: W3C WebDriver BiDi (w3c.github.io/webdriver-bidi): session, browsingContext, script, input, log, network.
"""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from tests.web.chromium import ChromiumPage

FIREFOXES = ("firefox", "firefox-esr")
FIREFOX = next((found for name in FIREFOXES if (found := shutil.which(name))), None)
# Nothing of its own asks the network, and no first page is shown.
_PREFERENCES = {
    "app.normandy.enabled": False,
    "app.update.enabled": False,
    "browser.aboutwelcome.enabled": False,
    "browser.safebrowsing.malware.enabled": False,
    "browser.safebrowsing.phishing.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "toolkit.telemetry.server": "data:,",
    "ui.useOverlayScrollbars": 1,  # as a phone has them
}
_KEYS = {
    "ArrowLeft": "\ue012",
    "ArrowUp": "\ue013",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
    "PageUp": "\ue00e",
    "PageDown": "\ue00f",
    "Home": "\ue011",
    "End": "\ue010",
    "Escape": "\ue00c",
    "Enter": "\ue007",
}
_SHIFT = "\ue008"
_BUTTONS = ("left", "middle", "right")


class FirefoxPage(ChromiumPage):
    """One page of Firefox as long as the `with` block lasts."""

    def _command_line(self, profile: Path) -> list[str]:
        profile.mkdir()
        lines = (f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in _PREFERENCES.items())
        (profile / "user.js").write_text("".join(lines))
        return [str(FIREFOX), "--headless", "--no-remote", "--remote-debugging-port=0", "--profile", str(profile)]

    def _address(self, profile: Path) -> str:
        try:
            server = json.loads((profile / "WebDriverBiDiServer.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return ""  # not yet, or half
        return f"ws://{server['ws_host']}:{server['ws_port']}/session"

    async def _begin(self) -> None:
        await self._send("session.new", {"capabilities": {}})
        tree = await self._send("browsingContext.getTree", {})
        self._context = tree["contexts"][0]["context"]
        await self._send("session.subscribe", {"events": ["log.entryAdded", "network.beforeRequestSent"]})

    def open(self, url: str) -> None:
        self.command("browsingContext.navigate", context=self._context, url=url, wait="none")
        until(lambda: self.value("document.URL") == url, "the page has begun")
        until(lambda: self.value("document.readyState") == "complete", "the page is loaded")

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        if method[0].isupper():
            pytest.skip(f"{method} is a command of Chromium")
        return super().command(method, **parameters)

    def value(self, expression: str) -> Any:
        target = {"context": self._context}
        result = self.command("script.evaluate", expression=expression, target=target, awaitPromise=True)
        assert result["type"] == "success", result
        return _plain(result["result"])

    def press(self, key: str, *, is_shifted: bool = False) -> None:
        keys = [_SHIFT] * is_shifted + [_KEYS.get(key, key)]
        actions = [{"type": "keyDown", "value": one} for one in keys]
        actions += [{"type": "keyUp", "value": one} for one in reversed(keys)]
        self._perform({"type": "key", "id": "keys", "actions": actions})

    def point(self, x: float, y: float) -> None:
        self._perform({"type": "pointer", "id": "mouse", "actions": [_move(x, y)]})

    def drag(self, kind: str, x: float, y: float, button: str = "left", buttons: int = 1) -> None:
        actions = [_move(x, y)]
        if kind != "mouseMoved":
            action = "pointerDown" if kind == "mousePressed" else "pointerUp"
            actions.append({"type": action, "button": _BUTTONS.index(button)})
        self._perform({"type": "pointer", "id": "mouse", "actions": actions})

    def wheel(self, x: float, y: float, dy: float) -> None:
        scroll = {"type": "scroll", "x": round(x), "y": round(y), "deltaX": 0, "deltaY": round(dy)}
        self._perform({"type": "wheel", "id": "wheel", "actions": [scroll]})

    def reload(self) -> None:
        self.command("browsingContext.reload", context=self._context, wait="none")

    def touch(self, x: float, y: float) -> None:
        actions = [_move(x, y), {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        finger = {"pointerType": "touch"}
        self._perform({"type": "pointer", "id": "finger", "parameters": finger, "actions": actions})

    def resize(self, width: int, height: int) -> None:
        viewport = {"width": width, "height": height}
        self.command("browsingContext.setViewport", context=self._context, viewport=viewport, devicePixelRatio=1.0)

    def screenshot(self, path: Path, *, is_complete: bool = False) -> None:
        origin = "document" if is_complete else "viewport"
        shot = self.command("browsingContext.captureScreenshot", context=self._context, origin=origin)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _perform(self, source: dict[str, Any]) -> None:
        self.command("input.performActions", context=self._context, actions=[source])

    def _take(self, method: str, content: dict[str, Any]) -> None:
        if method == "network.beforeRequestSent" and not content["request"]["url"].startswith("data:"):
            self.requests.append(content["request"]["url"])
        elif method == "log.entryAdded" and content["level"] == "error":
            self.errors.append(json.dumps(content)[:1000])


def _plain(value: dict[str, Any]) -> Any:
    """A value of the page; None for one that has no like here, as an element."""
    content = value.get("value")
    match value["type"]:
        case "string" | "number" | "boolean":
            return content
        case "array" if content is not None:
            return [_plain(one) for one in content]
        case "object" if content is not None:
            return {key: _plain(one) for key, one in content}
    return None


def _move(x: float, y: float) -> dict[str, Any]:
    return {"type": "pointerMove", "x": x, "y": y}
