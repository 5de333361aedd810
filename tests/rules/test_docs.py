"""Documents point at files that exist and name every command."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\)")
MAX_PROSE = 120
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)  # https:, mailto:


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "systemd").rglob("*.md")])


def headings(path: Path) -> set[str]:
    """The anchors that a Markdown page offers."""
    titles = re.findall(r"^#+ +(.+?) *$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    broken = []
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if ELSEWHERE.match(target):
            continue
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in headings(path)):
            broken.append(target)
    assert not broken, f"{page.relative_to(ROOT)} links to what is not there: {', '.join(broken)}"


@pytest.mark.parametrize("page", documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_line_of_prose_is_long(page):
    """Tables, code and what is indented may be."""
    lines = FENCE.sub("", page.read_text(encoding="utf-8")).splitlines()
    assert not [line for line in lines if len(line) > MAX_PROSE and not line.startswith(("|", "    "))]


def test_the_pages_build_as_a_site(tmp_path):
    """Sphinx ends with an error for a link that leads nowhere, or a page that no other one names."""
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        str(ROOT / "docs"),
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").is_file()


def test_the_readme_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 160


def test_decisions_have_their_three_parts():
    for page in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        assert {"context", "decision", "consequences"} <= headings(page), page.name


def test_the_readme_names_every_command():
    if not README.exists() or importlib.util.find_spec("acqstream.cli.main") is None:
        pytest.skip("there is no README or no command line yet")
    import typer.main

    from acqstream.cli.main import app

    command = typer.main.get_command(app)
    verbs = getattr(command, "commands", {})
    assert verbs, "no commands found"
    text = README.read_text(encoding="utf-8")
    missing = [verb for verb in verbs if f"acqstream {verb}" not in text]
    assert not missing, f"README.md does not name: {', '.join(missing)}"
