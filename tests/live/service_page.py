"""The commands of pages on installing, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "system-service.md"
INSTALL_PAGE = PAGE.with_name("install.md")


def commands(heading: str, page: Path = PAGE) -> str:
    """The first block of commands under a heading, as one script.

    Fails if there is none: a page that was rearranged must not become a test of nothing.
    """
    text = page.read_text(encoding="utf-8")
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page} has no heading {heading!r}"
    blocks = re.findall(r"(?:^    .*\n)+", found[1], re.MULTILINE)
    assert blocks, f"{page} has no commands under {heading!r}"
    return re.sub(r"^    ", "", blocks[0], flags=re.MULTILINE)
