"""How the packages of an extra are installed here: a message never names acqstream as if the package index had it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_NAME = "acqstream"


def install_command(extra: str) -> str:
    """The command for an extra, as "web": of the checkout or file that this came from, else by its packages."""
    import json  # here and below: for errors only
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    root = Path(__file__).parents[1]
    if (root / "pyproject.toml").is_file():
        return _of_place(root, extra)
    try:
        found = distribution(_NAME)
    except PackageNotFoundError:  # copied by hand
        return f"pip install the packages of `{extra}` in pyproject.toml"
    url = json.loads(found.read_text("direct_url.json") or "{}").get("url", "")
    if url.startswith("file:"):
        place = Path(url2pathname(urlsplit(url).path))
        if place.exists():
            return _of_place(place, extra)
    return " ".join(["pip install", *map(_quoted, _packages(found, extra))])


def _of_place(place: Path, extra: str) -> str:
    return f"pip install {_quoted(f'{place}[{extra}]')}"


def _quoted(text: str) -> str:
    """In marks that every shell knows, that of Windows too."""
    return text if text.isalnum() else f'"{text}"'


def _packages(found: Distribution, extra: str) -> list[str]:
    """What the extra asks for, less what is acqstream's own."""
    import re

    wanted = re.compile(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]")
    needed = [one.partition(";")[0].strip() for one in found.requires or [] if wanted.search(one)]
    packages: list[str] = []
    for one in needed:
        own = re.fullmatch(rf"{_NAME}\[([a-z0-9,]+)\]", one)
        packages += [one] if own is None else [name for part in own[1].split(",") for name in _packages(found, part)]
    return list(dict.fromkeys(packages))
