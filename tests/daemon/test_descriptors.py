"""The limit of open descriptors, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no such limit")

PROGRAM = """
import resource
from acqstream.daemon.resources import raise_descriptor_limit
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, min(hard, 200)))
print(raise_descriptor_limit(), resource.getrlimit(resource.RLIMIT_NOFILE), raise_descriptor_limit())
"""


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert ended.stdout == "200 (200, 200) 200\n"
