from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from acqstream.client.keys import KEYS_VARIABLE, SERVER_KEY_VARIABLE, curve_keys, make_keys
from acqstream.errors import ConfigError
from tests.command import command

FAR = "tcp://192.0.2.7:5272"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_keys(tmp_path, "server")
    make_keys(tmp_path, "client")
    return tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="modes of files")
def test_keys_are_for_this_user_only(tmp_path: Path) -> None:
    public, secret = make_keys(tmp_path / "new", "client")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (public, secret)] == [0o600, 0o600]


def test_keys_are_not_overwritten(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"client\.key exists"):
        make_keys(folder, "client")


def test_the_environment_counts_for_other_machines_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert curve_keys(FAR, None, None) is None
    monkeypatch.setenv(SERVER_KEY_VARIABLE, str(folder / "server.key"))
    monkeypatch.setenv(KEYS_VARIABLE, str(folder / "client.key_secret"))
    keys = curve_keys(FAR, None, None)
    assert keys is not None
    assert keys == curve_keys("tcp://127.0.0.1:1", folder / "server.key", folder / "client.key_secret")
    assert keys.secret.decode() not in repr(keys)
    for endpoint in ("tcp://127.0.0.1:5271", "tcp://localhost:5271", "ipc:///run/a"):
        assert curve_keys(endpoint, None, None) is None


@pytest.mark.parametrize(
    ("server", "client", "text"),
    [
        (None, "client.key_secret", "server_key"),
        ("server.key", None, "keys"),
        ("server.key", "client.key", "no secret key"),
        ("absent.key", "client.key_secret", "absent.key"),
        ("server.key", "absent", "absent"),
        ("server.key", "empty", "empty"),
        ("short", "client.key_secret", "40 characters"),
    ],
)
def test_what_cannot_work_is_told(folder: Path, server: str | None, client: str | None, text: str) -> None:
    (folder / "empty").write_bytes(b"")
    (folder / "short").write_text('public-key = "abc"\n', "utf-8")
    with pytest.raises(ConfigError, match=text):
        curve_keys(FAR, server and folder / server, client and folder / client)


def test_the_verb_makes_a_pair_and_says_what_comes_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("keys", "client", tmp_path / "k", "--name", "alice") == 0
    assert sorted(path.name for path in (tmp_path / "k").iterdir()) == ["alice.key", "alice.key_secret"]
    assert "client_keys" in capsys.readouterr().out


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_key_file_that_never_ends_is_told(folder: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.key")
    (tmp_path / "large.key").touch()
    os.truncate(tmp_path / "large.key", 2**40)
    for name, text in (("pipe", "is not a regular file"), ("large", "expected at most 65536")):
        with pytest.raises(ConfigError, match=text):
            curve_keys(FAR, tmp_path / f"{name}.key", folder / "client.key_secret")
