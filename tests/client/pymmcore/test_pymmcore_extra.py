"""What happens where pymmcore-plus is missing, and what is loaded when."""

from __future__ import annotations

import subprocess
import sys

MISSING = """
import sys
sys.modules["pymmcore_plus"] = None
import acqstream.client
try:
    import acqstream.client.pymmcore
except ImportError as error:
    print(error)
"""
LIGHT = """
import sys
import acqstream, acqstream.client, acqstream.client.producer
print("pymmcore_plus" in sys.modules)
"""


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_the_extra_is_named_where_it_is_missing():
    assert "[pymmcore]" in run(MISSING)


def test_the_client_alone_loads_no_microscope_software():
    assert run(LIGHT).strip() == "False"
