"""What the daemon can be told, and how it says what is wrong with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from acqstream.daemon.config import DEFAULT_ENDPOINT, DaemonConfig, load_config
from acqstream.errors import ConfigError


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "acqstream.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_defaults_are_local_and_bounded() -> None:
    config = load_config()
    assert config.endpoints == [DEFAULT_ENDPOINT]
    assert 16 <= config.memory_mb <= 1536
    assert config.grace_s == 60.0


def test_a_file_is_overridden_by_what_is_given_and_only_by_that(tmp_path: Path) -> None:
    path = written(tmp_path, 'data = "/srv/a"\nmemory_mb = 100\nendpoints = ["tcp://127.0.0.1:6000"]\n')
    config = load_config(path, data=tmp_path, endpoints=None)
    assert config.data == tmp_path
    assert config.memory_mb == 100
    assert config.endpoints == ["tcp://127.0.0.1:6000"]


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://127.0.0.1:5271", "tcp://127.1.2.3:1", "tcp://localhost:*", "tcp://[::1]:65535", "ipc:///run/a.sock"],
)
def test_local_endpoints(endpoint: str) -> None:
    assert DaemonConfig(endpoints=[endpoint]).endpoints == [endpoint]


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp://0.0.0.0:5271",
        "tcp://*:5271",
        "tcp://192.168.1.5:5271",
        "tcp://[::]:5271",
        "tcp://127.example.org:5271",
        "tcp://127.0.0.1",
        "tcp://127.0.0.1:65536",
        "tcp://127.0.0.1:x",
        "pgm://127.0.0.1:5271",
        "inproc://a",
        "ipc://",
        "",
    ],
)
def test_other_endpoints_are_refused_by_name(tmp_path: Path, endpoint: str) -> None:
    path = written(tmp_path, f'endpoints = ["{DEFAULT_ENDPOINT}", "{endpoint}"]\n')
    with pytest.raises(ConfigError) as info:
        load_config(path)
    for part in (str(path), "endpoints", endpoint):
        assert part in str(info.value)


@pytest.mark.parametrize(
    "endpoint", ["tcp://0.0.0.0:5272", "tcp://*:1", "tcp://[::]:5272", "tcp://eth0:*", "tcp://scope1.example.org:5272"]
)
def test_remote_endpoints_need_keys(tmp_path: Path, endpoint: str) -> None:
    keys = {"server_key": tmp_path / "server.key_secret", "client_keys": tmp_path}
    assert load_config(remote=[endpoint], **keys).remote == [endpoint]
    for name, path in keys.items():
        with pytest.raises(ConfigError, match="remote needs server_key and client_keys"):
            load_config(remote=[endpoint], **{name: path})


@pytest.mark.parametrize("endpoint", ["ipc:///run/a", "tcp://0.0.0.0", "tcp://0.0.0.0:65536", "pgm://a:1", "tcp://:1"])
def test_other_remote_endpoints_are_refused(tmp_path: Path, endpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"^remote: ") as info:
        load_config(remote=[endpoint], server_key=tmp_path, client_keys=tmp_path)
    assert endpoint in str(info.value)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("colour = 3", "colour"),
        ("memory_mb = 15", "memory_mb"),
        ('memory_mb = "much"', "memory_mb"),
        ("endpoints = []", "endpoints"),
        ("grace_s = -1", "grace_s"),
        ("max_acquisitions = 0", "max_acquisitions"),
        ("max_payload_mb = 5000", "max_payload_mb"),
        ("[section]\na = 1", "section"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_field(tmp_path: Path, text: str, field: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as info:
        load_config(path)
    assert str(info.value).startswith(f"{path}: {field}")


@pytest.mark.parametrize("content", [b"memory_mb = \n", b"\xff\xfe", b"a = 1\na = 2\n"])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"broken\.toml"):
        load_config(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml"):
        load_config(tmp_path / "absent.toml")


def test_an_override_that_is_wrong_is_told_without_a_file() -> None:
    with pytest.raises(ConfigError, match=r"^memory_mb: "):
        load_config(memory_mb=1)


def test_a_file_that_is_no_configuration_of_any_size(tmp_path: Path) -> None:
    path = tmp_path / "acqstream.toml"
    path.write_text("a = " + "[" * 100_000)
    with pytest.raises(ConfigError, match="cannot read configuration"):
        load_config(path)
    os.truncate(path, 2**40)
    with pytest.raises(ConfigError, match="expected at most 1048576"):
        load_config(path)
    path.unlink()
    if hasattr(os, "mkfifo"):
        os.mkfifo(path)
        with pytest.raises(ConfigError, match="is not a regular file"):
            load_config(path)
