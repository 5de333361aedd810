"""Who could have put something at a path."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from acqstream.storage.files.boundary import distrust
from tests.live.other_user import SERVICE, STRANGER, only_root, result_as, shared_folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="user ids")


@pytest.fixture
def shared() -> Iterator[Path]:
    with shared_folder() as folder:
        yield folder


def owned(path: Path, user: int, mode: int = 0o700) -> Path:
    path.mkdir()
    os.chown(path, user, user)
    path.chmod(mode)
    return path


def test_own_folders_are_trusted(tmp_path: Path, shared: Path) -> None:
    (tmp_path / "a.sock").touch()
    (shared / "mine").mkdir(0o700)
    assert distrust(tmp_path / "a.sock") == ""
    assert distrust(shared / "mine") == ""
    assert distrust(shared / "mine" / "missing" / "a.sock") == ""


def test_a_folder_where_all_users_may_write_needs_the_sticky_bit(shared: Path) -> None:
    (shared / "a.sock").touch()
    assert distrust(shared / "a.sock") == ""
    shared.chmod(0o777)
    assert f"all users may write in {shared} (mode 0777)" in distrust(shared / "a.sock")


@only_root
def test_what_a_stranger_has_put_into_a_shared_folder(shared: Path) -> None:
    folder = owned(shared / "acqstream-0", STRANGER, 0o755)
    (folder / "a.sock").touch()  # and that one is root's
    reason = f"{folder} belongs to user {STRANGER}, in a folder where all users may write"
    assert distrust(folder / "a.sock") == reason
    assert result_as(SERVICE, lambda: distrust(folder / "a.sock")) == reason
    assert result_as(STRANGER, lambda: distrust(folder / "a.sock")) == ""


@only_root
def test_links(shared: Path) -> None:
    real = owned(shared / "real", 0, 0o755)
    (real / "a.sock").touch()
    for user, expected in ((0, ""), (STRANGER, f"{shared / 'link'} belongs to user {STRANGER}")):
        (shared / "link").symlink_to("real" if user else real)
        os.lchown(shared / "link", user, user)
        assert distrust(shared / "link" / "a.sock").startswith(expected)
        assert bool(distrust(shared / "link" / ".." / "link" / "a.sock")) == bool(expected)
        (shared / "link").unlink()
    (real / "out").symlink_to(owned(shared / "theirs", STRANGER, 0o755))
    assert f"{shared / 'theirs'} belongs to user" in distrust(real / "out" / "a.sock")
    (shared / "round").symlink_to("round")
    assert "symbolic links" in distrust(shared / "round" / "a.sock")


@only_root
@pytest.mark.parametrize("mode", [0o750, 0o755])
def test_a_folder_that_root_made_for_a_service(shared: Path, mode: int) -> None:
    """As /run/acqstream: /run is root's, and writable for root only."""
    run = owned(shared / "run", 0, 0o755)
    folder = owned(run / "acqstream", SERVICE, mode)
    (folder / "acqstream.sock").touch()
    os.chown(folder / "acqstream.sock", SERVICE, SERVICE)
    assert distrust(folder / "acqstream.sock") == ""
    assert result_as(STRANGER, lambda: distrust(folder / "acqstream.sock")) == ""
