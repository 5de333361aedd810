"""Files that only their owner can read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from acqstream.storage import platform
from acqstream.storage.platform import windows_names
from acqstream.storage.platform.windows_names import open_to

OWNER = "(A;;FA;;;S-1-5-21-1004336348-1177238915-682003330-512)"


@pytest.mark.parametrize(
    ("dacl", "groups"),
    [
        (f"D:P{OWNER}(A;;FA;;;SY)(A;;FA;;;BA)", []),
        (f"D:PAI{OWNER}", []),
        (f"D:AI{OWNER}(A;ID;0x1200a9;;;BU)", ["Users"]),
        ("D:AI(A;OICIID;FA;;;AU)(A;ID;FR;;;WD)", ["Authenticated Users", "Everyone"]),
        ("D:P(D;;FA;;;WD)(A;;FA;;;SY)", []),  # denied
        (f"D:P{OWNER}(A;OICIIO;FA;;;WD)", []),  # for files to come
        ("D:NO_ACCESS_CONTROL", ["Everyone"]),
        ("", ["Everyone"]),  # a file system without lists
        ("O:BAG:SYD:(XA;;FR;;;WD;(@User.Title==1))", ["Everyone"]),
    ],
)
def test_groups_of_all_users_are_found_in_an_access_list(dacl: str, groups: list[str]) -> None:
    """Forms: "ACE Strings" on learn.microsoft.com."""
    assert open_to(dacl) == groups


def test_a_private_file_is_not_exposed(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    platform.create_private(path)
    assert path.read_bytes() == b""
    if sys.platform != "win32":  # Wine keeps no access lists
        assert platform.exposure(path) == ""
        path.chmod(0o604)
        assert "chmod" in platform.exposure(path)
    with pytest.raises(FileExistsError):
        platform.create_private(path)


def test_the_remedy_works_in_any_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """PowerShell does not replace %USERNAME%; icacls takes the number of a user after an asterisk."""
    monkeypatch.setattr(windows_names, "_dacl", lambda path: "D:(A;;FR;;;BU)")
    monkeypatch.setattr(windows_names, "_user_sid", lambda: "S-1-5-21-7")
    text = windows_names.exposure(Path("key"))
    assert text.startswith("Users can read key")
    assert text.endswith('icacls "key" /inheritance:r /grant:r "*S-1-5-21-7:F"')
