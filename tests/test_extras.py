"""How an extra is installed: as this installation was, and never by a name that the package index lacks."""

from __future__ import annotations

import json
import re
import shlex
from importlib import metadata
from pathlib import Path

import pytest

from acqstream import extras
from acqstream.extras import install_command

ROOT = Path(__file__).parents[1]
REQUIRES = ["numpy>=1.26", 'aiohttp>=3.11; extra == "web"', "acqstream[web]; extra == 'neuroglancer'"]
REQUIRES += ["neuroglancer>=2.40; extra == 'neuroglancer'"]


class _Installed:
    requires = REQUIRES

    def __init__(self, url: str | None) -> None:
        self._url = url

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self._url is None else json.dumps({"url": self._url})


def test_this_checkout() -> None:
    assert shlex.split(install_command("web")) == ["pip", "install", f"{ROOT}[web]"]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in site-packages: no project file lies beside the package."""
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "site-packages" / "acqstream" / "extras.py"))


def test_a_copy_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, installed: None) -> None:
    def missing(_name: str) -> None:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "distribution", missing)
    assert install_command("web") == "pip install the packages of `web` in pyproject.toml"


@pytest.mark.parametrize(
    ("extra", "packages"), [("web", ["aiohttp>=3.11"]), ("neuroglancer", ["aiohttp>=3.11", "neuroglancer>=2.40"])]
)
@pytest.mark.parametrize("url", [None, "https://host/acqstream.whl", "file:///gone/acqstream"])
def test_packages_by_name(
    monkeypatch: pytest.MonkeyPatch, installed: None, extra: str, packages: list[str], url: str | None
) -> None:
    monkeypatch.setattr(metadata, "distribution", lambda _: _Installed(url))
    assert shlex.split(install_command(extra)) == ["pip", "install", *packages]


def test_a_file_with_spaces(monkeypatch: pytest.MonkeyPatch, installed: None, tmp_path: Path) -> None:
    place = tmp_path / "my wheels"
    place.mkdir()
    monkeypatch.setattr(metadata, "distribution", lambda _: _Installed(place.as_uri()))
    assert shlex.split(install_command("web")) == ["pip", "install", f"{place}[web]"]


def test_no_page_and_no_message_names_what_the_index_lacks() -> None:
    named = re.compile(r"pip install ['\"]?acqstream\b")
    files = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("acqstream/**/*.py")]
    assert len(files) > 100
    assert [str(one) for one in files if named.search(one.read_text(encoding="utf-8"))] == []
