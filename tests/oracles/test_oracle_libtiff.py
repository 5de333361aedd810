"""libtiff finds every page of every stack that the log writes, and complains of nothing but an unknown tag."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.oracles import libtiff
from tests.oracles.sample_datasets import NAMES, PLANS, Sample, assert_same_pixels

pytestmark = pytest.mark.oracle

UNKNOWN_TAG = "Unknown field with tag 51123"
# In the middle of a run the last page points to where the next one will be: behind the end of the copied file.
CHAIN_GOES_ON = re.compile(r"Can not read TIFF directory count|Failed to read directory at offset \d+")
TIFFINFO = shutil.which("tiffinfo")


@pytest.mark.promise("other-readers")
@pytest.mark.skipif(libtiff.library() is None, reason="the installed Pillow has no libtiff of its own")
@pytest.mark.parametrize("sample", NAMES, indirect=True)
def test_libtiff_finds_every_page_in_order(sample: Sample) -> None:
    found = 0
    stacks = sample.stacks
    for path in stacks:
        file = libtiff.read(path)
        assert not [text for text in file.warnings if UNKNOWN_TAG not in text]
        chain_goes_on = sample.growing and path == stacks[-1]
        assert bool(file.errors) is chain_goes_on, file.errors
        assert all(CHAIN_GOES_ON.search(text) for text in file.errors), file.errors
        for page in file.pages:
            frame = sample.frames[found]
            assert_same_pixels(page.pixels, frame)
            assert json.loads(page.metadata) == frame.metadata
            found += 1
    assert found == len(sample.frames)


@pytest.mark.skipif(libtiff.library() is None, reason="the installed Pillow has no libtiff of its own")
def test_libtiff_would_be_heard_if_it_complained(samples: Mapping[str, Sample], tmp_path: Path) -> None:
    data = bytearray(samples["one_frame"].stacks[0].read_bytes())
    directory = int.from_bytes(data[4:8], "little")
    count_at = directory + 2 + 12 * 12 + 4  # of the metadata, the last of 13 tags
    count = int.from_bytes(data[count_at : count_at + 4], "little")
    data[count_at : count_at + 4] = (count - 1).to_bytes(4, "little")  # the text without its NUL
    path = tmp_path / "without_nul.tif"
    path.write_bytes(data)
    assert [text for text in libtiff.read(path).warnings if "null" in text]


@pytest.mark.skipif(TIFFINFO is None, reason="tiffinfo is not on the PATH")
@pytest.mark.parametrize("sample", PLANS, indirect=True)
def test_tiffinfo_reads_every_page_without_complaint(sample: Sample) -> None:
    assert TIFFINFO is not None
    pages = 0
    for path in sample.stacks:
        done = subprocess.run([TIFFINFO, "-D", path], capture_output=True, text=True, timeout=50, check=False)
        assert done.returncode == 0
        assert not [line for line in done.stderr.splitlines() if UNKNOWN_TAG not in line]
        pages += len(re.findall(r"^TIFF Directory at offset", done.stdout, re.MULTILINE))
    assert pages == len(sample.frames)
