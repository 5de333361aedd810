"""The files in systemd/: units that systemd accepts, and a configuration that names every option."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from acqstream.cli.output import ExitCode
from acqstream.client.default_endpoint import SYSTEM_SOCKET
from acqstream.daemon.config import DEFAULT_ENDPOINT, PROGRAM_MB, DaemonConfig, load_config

FOLDER = Path(__file__).resolve().parents[2] / "systemd"
SYSTEM, USER = FOLDER / "acqstream.service", FOLDER / "user" / "acqstream.service"
EXPOSURE = 20  # tenths; 96 is an empty unit

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")


def unit(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path, encoding="utf-8")
    return parser


def analyze(tmp_path: Path, source: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and output for a copy of the unit whose program exists on this machine."""
    copy = tmp_path / source.name
    text, count = re.subn(r"^ExecStart=\S+", "ExecStart=/bin/true", source.read_text("utf-8"), flags=re.MULTILINE)
    assert count == 1
    copy.write_text(text, "utf-8")
    command = ["systemd-analyze", *arguments, str(copy)]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, env=environment)
    return ended.returncode, ended.stdout + ended.stderr


@needs_systemd
@pytest.mark.parametrize(("path", "options"), [(SYSTEM, []), (USER, ["--user"])], ids=["system", "user"])
def test_systemd_has_nothing_to_say_about_the_units(tmp_path: Path, path: Path, options: list[str]) -> None:
    assert analyze(tmp_path, path, *options, "verify") == (0, "")


@needs_systemd
def test_the_system_service_is_exposed_little(tmp_path: Path) -> None:
    code, output = analyze(tmp_path, SYSTEM, "security", "--offline=true", f"--threshold={EXPOSURE}")
    assert code == 0, output


@pytest.mark.parametrize("path", [SYSTEM, USER], ids=["system", "user"])
def test_units_rely_on_what_the_daemon_does(path: Path) -> None:
    service = unit(path)["Service"]
    assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")
    assert int(service["RestartPreventExitStatus"]) == ExitCode.CONFIGURATION
    assert int(service["WatchdogSec"].removesuffix("s")) >= 60


@pytest.mark.parametrize("path", [SYSTEM, USER], ids=["system", "user"])
def test_libzmq_may_list_network_interfaces(path: Path) -> None:
    """It calls getifaddrs, and ends the process where that is refused."""
    assert "AF_NETLINK" in unit(path)["Service"]["RestrictAddressFamilies"].split()


def test_the_system_service_opens_no_port() -> None:
    config = load_config(FOLDER / "acqstream.toml")
    assert config.endpoints == [f"ipc://{SYSTEM_SOCKET.as_posix()}"]
    assert config.remote == []
    assert SYSTEM_SOCKET.parent.as_posix() == f"/run/{unit(SYSTEM)['Service']['RuntimeDirectory']}"


def test_the_user_service_is_found_at_the_default(tmp_path: Path) -> None:
    config = load_config(FOLDER / "user" / "acqstream.toml")
    assert (config.endpoints, config.data) == ([DEFAULT_ENDPOINT], Path("/home/NAME/data"))
    local = re.sub(
        r"^# (endpoints = )", r"\1", (FOLDER / "user" / "acqstream.toml").read_text("utf-8"), flags=re.MULTILINE
    )
    path = tmp_path / "local.toml"
    path.write_text(local.replace(f'endpoints = ["{DEFAULT_ENDPOINT}"]\n', ""), "utf-8")
    assert load_config(path).endpoints == ["ipc:///run/user/1000/acqstream/acqstream.sock"]


def test_the_group_may_change_what_the_service_writes() -> None:
    assert unit(SYSTEM)["Service"]["UMask"] == "0007"
    assert "d /srv/acqstream 2770 acqstream acqstream" in (FOLDER / "tmpfiles.d" / "acqstream.conf").read_text("utf-8")


def test_the_configuration_names_every_option_once_and_no_other() -> None:
    text = (FOLDER / "acqstream.toml").read_text(encoding="utf-8")
    keys = re.findall(r"^(?:# )?([a-z_]+) = ", text, re.MULTILINE)
    assert sorted(keys) == sorted(DaemonConfig.model_fields)


def test_the_configuration_and_its_examples_can_be_loaded(tmp_path: Path) -> None:
    text = (FOLDER / "acqstream.toml").read_text(encoding="utf-8")
    assert load_config(FOLDER / "acqstream.toml").data == Path("/srv/acqstream")
    everything = re.sub(r"^# ([a-z_]+ = )", r"\1", text, flags=re.MULTILINE)
    assert set(tomllib.loads(everything)) == set(DaemonConfig.model_fields)
    path = tmp_path / "everything.toml"
    path.write_text(everything, encoding="utf-8")
    load_config(path)


def test_the_memory_of_the_service_is_that_of_the_largest_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=2**50))
    monkeypatch.setattr("acqstream.storage.memory_limit.memory_limit_bytes", lambda: None)
    config = DaemonConfig()
    assert unit(SYSTEM)["Service"]["MemoryMax"] == f"{config.max_memory_mb}M"
    numbers = (config.memory_mb, config.pyramid_memory_mb, config.mirror_memory_mb, PROGRAM_MB)
    page = " ".join((FOLDER.parent / "docs" / "configuration.md").read_text("utf-8").split())
    assert f"{' + '.join(map(str, numbers))} = {sum(numbers)}M" in page
    sum_text = f"memory_mb + pyramid_memory_mb + mirror_memory_mb + {PROGRAM_MB}"
    others = (FOLDER / "acqstream.toml", SYSTEM)
    assert all(sum_text in text for text in (page, *(path.read_text("utf-8") for path in others)))
    assert DaemonConfig(mirror_memory_mb=5000).max_memory_mb == config.max_memory_mb + 5000 - config.mirror_memory_mb


def test_the_page_tells_every_exit_code_of_the_daemon() -> None:
    page = (FOLDER.parent / "docs" / "system-service.md").read_text(encoding="utf-8")
    for code in (ExitCode.OK, ExitCode.ERROR, ExitCode.INCOMPLETE, ExitCode.STORAGE, ExitCode.CONFIGURATION):
        assert f"| {code.value} |" in page


@needs_systemd
def test_the_system_service_may_do_what_shared_memory_takes() -> None:
    service = unit(SYSTEM)["Service"]
    assert "AF_UNIX" in service["RestrictAddressFamilies"].split()
    assert service["RuntimeDirectoryMode"] == "0750"  # its group reaches the socket
    command = ["systemd-analyze", "--no-pager", "syscall-filter"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    groups: dict[str, set[str]] = {}
    for line in ended.stdout.splitlines():
        name = line.strip()
        if line.startswith("@"):
            members = groups.setdefault(name, set())
        elif name.startswith("#") or not name:
            continue
        elif groups:
            members.add(name)

    def calls_of(group: str) -> set[str]:
        return set().union(*(calls_of(one) if one.startswith("@") else {one} for one in groups[group]))

    needed = {"socket", "listen", "accept4", "recvmsg", "sendto", "getsockopt", "fcntl", "fstat", "mmap", "madvise"}
    assert needed | {"memfd_create", "epoll_ctl"} <= calls_of(service["SystemCallFilter"])
