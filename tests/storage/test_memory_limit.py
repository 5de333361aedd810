"""What a service manager lets this process take, read from a made-up tree of cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from acqstream.storage.memory_limit import memory_limit_bytes


def limit_of(tmp_path: Path, own: str, limits: dict[str, str]) -> int | None:
    (tmp_path / "cgroup").write_text(own, encoding="ascii")
    for group, text in limits.items():
        folder = tmp_path / "groups" / group
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(text + "\n", encoding="ascii")
    return memory_limit_bytes(tmp_path / "cgroup", tmp_path / "groups")


UNIT = "system.slice/acqstream.service"


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        (f"0::/{UNIT}\n", {UNIT: "5100273664"}, 5100273664),
        (f"0::/{UNIT}\n", {UNIT: "max", "system.slice": "max"}, None),
        (f"0::/{UNIT}\n", {UNIT: "max", "system.slice": "1000"}, 1000),
        (f"0::/{UNIT}\n", {UNIT: "900", "system.slice": "1000", "other": "1"}, 900),
        (f"1:cpu:/\n4:memory:/x\n0::/{UNIT}\n", {UNIT: "7"}, 7),
        ("0::/\n", {"": "800"}, 800),  # in a container
        ("4:memory:/x\n", {}, None),  # cgroups version 1 only
        ("", {}, None),
    ],
)
def test_the_least_limit_counts(tmp_path: Path, own: str, limits: dict[str, str], expected: int | None) -> None:
    assert limit_of(tmp_path, own, limits) == expected


def test_without_cgroups_there_is_none(tmp_path: Path) -> None:
    assert memory_limit_bytes(tmp_path / "nothing", tmp_path) is None
