"""The browser of the tests of pages: Chromium, or Firefox if ACQSTREAM_TEST_BROWSER is "firefox"."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.oracles.neuroglancer_page import BROWSER, BROWSERS
from tests.web.firefox import FIREFOX, FIREFOXES

IS_FIREFOX = os.environ.get("ACQSTREAM_TEST_BROWSER") == "firefox"
if TYPE_CHECKING or not IS_FIREFOX:
    from tests.web.chromium import ChromiumPage as BrowserPage
else:
    from tests.web.firefox import FirefoxPage as BrowserPage

__all__ = ["IS_FIREFOX", "BrowserPage", "needs_browser"]

_IS_HERE = (FIREFOX if IS_FIREFOX else BROWSER) is not None
_NAMES = ", ".join(FIREFOXES if IS_FIREFOX else BROWSERS)
needs_browser = pytest.mark.skipif(not _IS_HERE, reason=f"no browser: none of {_NAMES} is installed")
