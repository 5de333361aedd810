"""Documents point at files that exist and name every command."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\)")
MAX_PROSE = 120
MAY_BE_LONG = {"code_block", "fence", "table_open"}
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


def long_prose(text: str) -> list[str]:
    """Lines above MAX_PROSE, also those of list items. Tables, code, and a link alone on its line may be longer."""
    tokens = MarkdownIt().enable("table").parse(text)
    exempt = {line for token in tokens if token.type in MAY_BE_LONG and token.map for line in range(*token.map)}
    return [
        line
        for number, line in enumerate(text.splitlines())
        if len(line) > MAX_PROSE and number not in exempt and not LINK.fullmatch(line.strip())
    ]


@pytest.mark.parametrize("page", documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_line_of_prose_is_long(page):
    assert long_prose(page.read_text(encoding="utf-8")) == []


WORDS = "word " * 30


@pytest.mark.parametrize(
    "text",
    [
        WORDS,
        f"* {WORDS}",
        f"1. {WORDS}",
        f"10. first\n    {WORDS}",
        f"* item\n\n    {WORDS}",
        f"* item\n    - {WORDS}",
        f"1. item\n\n   | a |\n   |---|\n   | b |\n\n   {WORDS}",
    ],
)
def test_long_prose_is_found(text):
    assert len(long_prose(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        f"text\n\n    {WORDS}",
        f"```\n{WORDS}\n```",
        f"| a |\n|---|\n| {WORDS} |",
        f"1. item\n\n       {WORDS}",
        f"[{WORDS}](page.md)",
        "word " * 23,
    ],
)
def test_code_tables_and_links_may_be_long(text):
    assert long_prose(text) == []


def test_the_first_page_leads_to_every_page():
    folder = ROOT / "docs"
    linked = {target.partition("#")[0] for target in LINK.findall((folder / "index.md").read_text(encoding="utf-8"))}
    assert {page.name for page in folder.glob("*.md")} - linked == {"index.md"}


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

    from acqstream.cli.main import command_line

    command = typer.main.get_command(command_line())
    verbs = getattr(command, "commands", {})
    assert verbs, "no commands found"
    text = README.read_text(encoding="utf-8")
    missing = [verb for verb in verbs if f"acqstream {verb}" not in text]
    assert not missing, f"README.md does not name: {', '.join(missing)}"
