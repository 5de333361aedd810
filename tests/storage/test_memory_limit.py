"""What a service manager or a container lets this process take: made-up trees of cgroups, and a real group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from acqstream.daemon.config import DaemonConfig
from acqstream.storage.memory_limit import memory_left_bytes, memory_limit_bytes
from tests.waiting import until


def limit_of(tmp_path: Path, own: str, limits: dict[str, str]) -> int | None:
    (tmp_path / "cgroup").write_text(own, encoding="ascii")
    for group, text in limits.items():
        folder = tmp_path / "groups" / group
        folder.mkdir(parents=True, exist_ok=True)
        (folder / NAMES.get(group, "memory.max")).write_text(text + "\n", encoding="ascii")
    return memory_limit_bytes(tmp_path / "cgroup", tmp_path / "groups")


V1 = ("total_", "memory.limit_in_bytes", "memory.usage_in_bytes")
NAMES = {"memory/docker/a": "memory.limit_in_bytes", "memory": "memory.limit_in_bytes", "throttled": "memory.high"}
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
        ("0::/throttled\n", {"throttled": "600"}, 600),
        ("4:memory:/x\n", {}, None),
        ("4:memory:/docker/a\n3:cpu:/b\n", {"memory/docker/a": "500", "memory": str(2**63 - 4096)}, 500),  # version 1
        ("4:memory:/docker/a\n", {"memory": "400"}, 400),  # in a container, which sees its own group alone
        ("4:memory:/docker/a\n0::/\n", {"memory/docker/a": "max"}, None),
        ("", {}, None),
    ],
)
def test_the_least_limit_counts(tmp_path: Path, own: str, limits: dict[str, str], expected: int | None) -> None:
    assert limit_of(tmp_path, own, limits) == expected


def test_without_cgroups_there_is_none(tmp_path: Path) -> None:
    assert memory_limit_bytes(tmp_path / "nothing", tmp_path) is None


@pytest.mark.parametrize(("prefix", "limit", "used"), [("", "memory.max", "memory.current"), V1])
def test_what_is_left_counts_the_page_cache_as_free(tmp_path: Path, prefix: str, limit: str, used: str) -> None:
    (tmp_path / "cgroup").write_text("4:memory:/\n0::/\n", encoding="ascii")
    folder = tmp_path / "groups" / ("memory" if prefix else "")
    folder.mkdir(parents=True)
    (folder / limit).write_text("1000\n", encoding="ascii")
    (folder / used).write_text("900\n", encoding="ascii")
    stat = f"cache 1\n{prefix}cache 500\n{prefix}shmem 200\n{prefix}inactive_file 100\n{prefix}active_file 200\n"
    (folder / "memory.stat").write_text(stat, encoding="ascii")
    assert memory_left_bytes(tmp_path / "cgroup", tmp_path / "groups") == 400


@pytest.mark.parametrize(
    ("limit_mb", "frames_mb", "mirror_mb"), [(None, 1536, 2048), (6656, 1536, 2048), (6000, 750, 1500), (512, 64, 128)]
)
def test_defaults_fit_into_the_limit(
    monkeypatch: pytest.MonkeyPatch, limit_mb: int | None, frames_mb: int, mirror_mb: int
) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=64 * 2**30))
    limit = None if limit_mb is None else limit_mb * 2**20
    monkeypatch.setattr("acqstream.storage.memory_limit.memory_limit_bytes", lambda: limit)
    config = DaemonConfig()
    assert (config.memory_mb, config.mirror_memory_mb, config.pyramid_memory_mb) == (frames_mb, mirror_mb, mirror_mb)


PROGRAM = """
import sys, acqstream, numpy as np
buffer = {"buffer_mb": float(sys.argv[2])} if sys.argv[2] else {}
with acqstream.create("cells", data=sys.argv[1], mirrors=["n5"], patience_s=60, **buffer) as run:
    for number in range(60):
        run.put(np.full((1024, 1024), number, "u2"), time=number)
print(run.receipt.status, run.receipt.stored, run.wait_for_mirrors(timeout_s=60)[0].state)
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A group of the memory controller with a limit of 512 MiB, version 1 or 2. Its processes are ended."""
    v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    is_v1 = (v1 / "cgroup.procs").exists()
    group = (v1 if is_v1 else v2) / f"acqstream-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if is_v1 else "memory.max")).write_text(str(512 * 2**20))
    except OSError as error:
        if group.exists():
            group.rmdir()
        pytest.skip(f"no group with a memory limit can be made here: {error}")
    yield group
    for number in (group / "cgroup.procs").read_text().split():
        os.kill(int(number), signal.SIGKILL)
    until(lambda: not (group / "cgroup.procs").read_text(), "the end of the group's processes")
    group.rmdir()


@pytest.mark.promise("small-memory")
@pytest.mark.parametrize(
    ("config", "buffer_mb", "expected"),
    [
        ("", "", "completed 60 complete"),
        ("memory_mb = 450", "", "memory_mb of the daemon needs 546 MiB"),
        ("", "600", "buffer_mb of create needs 572 MiB"),
    ],
)
def test_a_run_in_a_small_container_is_recorded_or_names_the_limit(
    tmp_path: Path, group: Path, config: str, buffer_mb: str, expected: str
) -> None:
    (tmp_path / "c.toml").write_text(f"{config}\nruntime = '{tmp_path / 'run'}'\n")
    environment = {**os.environ, "ACQSTREAM_CONFIG": str(tmp_path / "c.toml")}
    (tmp_path / "data").mkdir()
    enter = f"import os, pathlib; pathlib.Path('{group}/cgroup.procs').write_text(str(os.getpid()))\n"
    command = [sys.executable, "-c", enter + PROGRAM, str(tmp_path / "data"), buffer_mb]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert expected in ended.stdout + ended.stderr
    assert ("may use 512 MiB" in ended.stderr) == (expected[0] != "c")


@pytest.mark.skipif(sys.platform == "win32", reason="a limit of POSIX")
def test_the_address_limit_lowers_defaults() -> None:
    """As `ulimit -v` sets it: on clusters and in JupyterHub."""
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30, 2 * 2**30))\n"
        "from acqstream.storage.memory_limit import usable_memory_bytes; print(usable_memory_bytes())"
    )
    assert int(subprocess.check_output([sys.executable, "-c", program], text=True)) == 2 * 2**30
