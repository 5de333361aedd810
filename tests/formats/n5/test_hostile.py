"""Containers damaged at random: an error of ours or the right shape, in bounded time and memory; nothing else."""

from __future__ import annotations

import random
import shutil

import numpy as np
import pytest

import acqstream
from acqstream.errors import AcqStreamError
from acqstream.formats.check_report import CheckReport
from acqstream.formats.n5 import FORMAT
from acqstream.storage.stores.data_path import place_of
from tests.formats.n5.n5_samples import samples, write_pyramid

TRIES = 60
WORDS = [b"-1", b"0", b"1e999", b"null", b"[]", b"{}", b'"x"', b"9" * 30, b"true", b"[[1]]", b"NaN"]


@pytest.fixture(scope="module", params=["bdv", "multiscale", "array"])
def whole(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile") / "a.n5"
    array = samples((2, 4, 9, 10), "uint16")
    fields = {"labels": {"channel": ("a", "b")}, "attributes": {"n": 1}}
    write_pyramid(
        folder,
        array,
        ("channel", "z", "y", "x"),
        layout=request.param,
        levels=2,
        blocks=[2, 4, 8],
        compression="gzip",
        **fields,
    )
    return folder


def read_all(folder):
    with acqstream.open(folder) as ds:
        for level in ds.levels:
            if np.prod(level.shape, dtype=float) < 1e6:
                assert level.read().shape == level.shape
    FORMAT.check(place_of(folder), CheckReport())


def error_of(folder):
    try:
        read_all(folder)
    except AcqStreamError as error:
        return str(error)
    return None


def damaged(content, randomness):
    """With a value replaced, some bytes changed, or cut."""
    kind = randomness.randrange(3)
    if kind == 0 and b"," in content:
        parts = content.split(b",")
        parts[randomness.randrange(len(parts))] = randomness.choice(WORDS)
        return b",".join(parts)
    if kind == 1:
        return content[: randomness.randrange(len(content))]
    changed = bytearray(content)
    for _ in range(randomness.choice((1, 2, 8))):
        changed[randomness.randrange(len(changed))] = randomness.choice(b'0123456789,[]{}"x\x00\xff')
    return bytes(changed)


def test_damage_at_random(whole, tmp_path):
    randomness = random.Random(whole.parent.name)
    copy = tmp_path / "a.n5"
    shutil.copytree(whole, copy)
    files = sorted(path for path in copy.rglob("*") if path.is_file())
    refused = 0
    for number in range(TRIES):
        named = [path for path in files if (path.name == "attributes.json") == (number % 3 > 0)]
        path = randomness.choice(named)
        content = path.read_bytes()
        path.write_bytes(damaged(content, randomness))
        text = error_of(copy)
        if text is not None:
            refused += 1
            assert str(copy) in text
        path.write_bytes(content)
    assert refused > TRIES // 4
    read_all(copy)
