"""A plugin of pytest that puts another build of the compiled kernels in place: that which KERNELS names."""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import ExtensionFileLoader

import pytest

from acqstream import grid

NAME = "acqstream.grid._kernels"
KERNELS = "ACQSTREAM_TEST_KERNELS"


def load() -> None:
    path = os.environ[KERNELS]
    spec = importlib.util.spec_from_file_location(NAME, path, loader=ExtensionFileLoader(NAME, path))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[NAME] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    grid._kernels = module  # type: ignore[attr-defined]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"kernels of {sys.modules['acqstream.grid.kernels'].compiled.__file__}")


def pytest_configure() -> None:
    load()  # before the first test module is imported
