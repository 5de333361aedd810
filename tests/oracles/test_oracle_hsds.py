"""A real HSDS server and h5pyd: golden trees, and our mirrors, after and while they grow."""

from __future__ import annotations

import hashlib
import shutil

import numpy as np
import pytest

from tests.formats.hsds.hsds_data import BUCKET, EXPECTED, GOLDEN
from tests.oracles.hsds_server import HsdsServer, needs_hsds

pytestmark = [pytest.mark.oracle, pytest.mark.slow, needs_hsds()]


def test_the_server_serves_the_golden_trees(tmp_path):
    """The expected values are those of the server, and the fixture works."""
    shutil.copytree(GOLDEN / "handmade", tmp_path / "root")
    with HsdsServer(tmp_path / "root", BUCKET) as server:
        for domain, expected in EXPECTED["handmade"].items():
            frames = expected["objects"]["/frames"]
            assert server.shape(domain, "/frames") == frames["shape"]
            assert server.objects(domain)["/frames"]["attrs"] == frames["attrs"]
            array = server.read(domain, "/frames")
            little = array.astype(array.dtype.newbyteorder("<"))
            assert hashlib.sha256(np.ascontiguousarray(little).tobytes()).hexdigest() == frames["sha256_c_order"]
