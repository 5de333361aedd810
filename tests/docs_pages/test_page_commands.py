"""What the documents show is typed as it stands, page by page, each in a root, a network and a /data of its own."""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer.main

from acqstream.cli.main import command_line
from tests.docs_pages import pages
from tests.docs_pages.blocks import PAGES, ROOT, Statement, statements

ALL = [one for path in PAGES for one in statements(path)]
PROGRAM = Path(__file__).with_name("page_program.py")
VERBS: dict[str, Any] = getattr(typer.main.get_command(command_line()), "commands")  # noqa: B009 - of a group
HOME = "/home/reader"
SCENE_S = 280
UNSHARE = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"]
RUNS, PARSED = ("python", "shell"), ("synopsis", "toml", "json", "yaml")


def excuse(one: Statement) -> pages.Excuse | None:
    fitting = (e for e in pages.EXCUSES if e.page in ("", one.page) and one.text.startswith(e.start))
    return next(fitting, None)


def outputs(one: Statement) -> list[str]:
    """The names before the colons of a printed output."""
    return re.findall(r"^(?:ok|PROBLEM|WARNING)? *([a-z ]+):", one.text, re.MULTILINE)


@dataclass(frozen=True)
class Scene:
    """Statements that are typed one after the other, from the same start."""

    name: str
    typed: tuple[Statement, ...]

    @property
    def page(self) -> pages.Page:
        return pages.PAGES.get(self.typed[0].page, pages.Page())

    @property
    def text(self) -> str:
        return "\n".join(one.text for one in self.typed)

    def data(self) -> set[str]:
        """The datasets that have to be there."""
        own = set(re.findall(r'(?:create|streaming|Acquisition)\("(\w+)"', self.text))
        given = "\n".join([self.page.shell, self.page.python, *self.page.before.values()])
        read = re.sub(r" #.*", "", self.text) + given
        return {name.rstrip(".") for name in re.findall(r"/data/([\w.]+)", read)} - own

    def is_served(self) -> bool:
        calls = re.findall(r"(?:create|streaming|install|Acquisition)\([^\n]*", self.text)
        sends = re.findall(r"acqstream (?:simulate|receive)[^\n]*", self.text)
        return any(not re.search(r"data=|endpoint=", call) for call in calls) or any("--data" not in s for s in sends)

    def steps(self) -> Iterator[dict[str, Any]]:
        page = self.page
        served = pages.served(page.data) if self.is_served() else ""
        yield shell("given", f"{page.shell}\n{served}")
        yield shell("given", f"import acqstream\n{page.python}") | {"language": "python"}
        for number, one in enumerate(self.typed):
            if one.language == "text":
                continue
            if text := _of(page.before, one, ""):
                yield shell("given", text) | ({"language": "python"} if text.startswith("# python") else {})
            step = shell(str(one), one.text) | {"language": one.language, "codes": _of(pages.CODES, one, [0])}
            if one.language == "toml":  # its first line names the file
                step |= shell(str(one), f"cat > {one.text.split()[1]} <<'END'\n{one.text}\nEND")
            if until := _of(pages.BESIDE, one, ""):
                step |= {"until": until, "ends": one.text.startswith(pages.ENDS)}
            if number + 1 < len(self.typed) and self.typed[number + 1].language == "text":
                step["output"] = outputs(self.typed[number + 1])
            yield step


def _of(table: Mapping[str, Any], one: Statement, default: Any) -> Any:
    return next((value for start, value in table.items() if one.text.startswith(start)), default)


def scenes() -> list[Scene]:
    found = []
    for page in dict.fromkeys(one.page for one in ALL):
        apart = pages.PAGES.get(page, pages.Page()).apart
        typed = [one for one in ALL if one.page == page and _is_typed(one)]
        blocks = {
            line: tuple(one for one in typed if one.block == line) for line in dict.fromkeys(o.block for o in typed)
        }
        alone = {line: parts for line, parts in blocks.items() if apart and parts[0].text.startswith(apart)}
        for line, parts in alone.items():
            ways = [part for one in parts for part in _alternatives(one)] if len(parts) > 1 else parts
            found += [Scene(f"{page}:{line}:{number}", (one,)) for number, one in enumerate(ways)]
        if together := tuple(one for one in typed if one.block not in alone):
            found.append(Scene(page, together))
    return found


def _is_typed(one: Statement) -> bool:
    if one.language in RUNS:
        return excuse(one) is None
    return one.page in pages.OUTPUTS if one.language == "text" else one.text.startswith("# acqstream.toml")


def _alternatives(one: Statement) -> Iterator[Statement]:
    if one.language == "shell":
        yield one
        return
    for node in ast.parse(one.text).body:
        yield Statement(one.page, one.block, "python", ast.get_source_segment(one.text, node) or "")


def run_in_sandbox(folder: Path, steps: list[dict[str, Any]], data: Path) -> subprocess.CompletedProcess[str]:
    """The output names the step that failed."""
    for name in ("root", "home"):
        (folder / name).mkdir()
    scene = folder / "scene.json"
    environment = {"HOME": HOME, "PATH": f"{sys.prefix}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "USER": "root"}
    environment |= {"DISPLAY": "", "PYTHONPATH": str(ROOT)}
    inside = {"/data": str(data), HOME: str(folder / "home")}
    content = {"root": str(folder / "root"), "folders": inside, "environment": environment, "steps": steps}
    scene.write_text(json.dumps(content), encoding="utf-8")
    command = [*UNSHARE, sys.executable, str(PROGRAM), str(scene)]
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=SCENE_S, check=False
    )


def shell(label: str, text: str) -> dict[str, Any]:
    return {"label": label, "language": "shell", "text": text, "codes": [0]}


# What pages read: plain/cells (time, channel), deep/cells (and z) with its mirrors, tiled scans, an array of N5.
MADE = """mkdir /data/plain /data/deep
acqstream simulate --data /data/plain --shape 256,256 --name cells --pattern noise --axes 'time=12,channel=DAPI|GFP'
acqstream simulate --data /data/plain --shape 128,128 --name scan --pattern noise --tiles 2x3 --overlap 50,50 --levels 0
acqstream simulate --data /data/deep --shape 640,640 --name cells --pattern noise --axes 'time=6,channel=DAPI|GFP,z=2'
acqstream shutdown --data /data/plain; acqstream shutdown --data /data/deep
cd /data/plain; cp -r cells cells_1; cp -r scan slide; cp -r ../deep/cells deep
acqstream mirror /data/deep/cells --to n5
acqstream mirror /data/deep/cells --to wkw
acqstream mirror /data/deep/cells --to precomputed
acqstream mirror /data/deep/cells --to hsds --option pixels=copy
cd /data/deep; rm -r cells *.view; mv ../plain/deep cells
mkdir others.n5; cp -r cells.n5/setup0/timepoint0/s0 others.n5/volume
cd /data/deep; echo '{"n5": "2.0.0"}' > others.n5/attributes.json"""


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with `plain` and `deep`."""
    if sys.platform == "win32" or shutil.which("unshare") is None:
        pytest.skip("a root and a network of their own need Linux and unshare")
    folder = tmp_path_factory.mktemp("datasets")
    (folder / "data").mkdir()
    done = run_in_sandbox(folder, [shell("the datasets", line) for line in MADE.splitlines()], folder / "data")
    if "FAILED" not in done.stdout and done.returncode != 0:
        pytest.skip(f"no root of its own can be made here: {done.stdout.strip()[-300:]}")
    assert done.returncode == 0, done.stdout
    return folder / "data"


@pytest.mark.slow
@pytest.mark.timeout_s(300)
@pytest.mark.parametrize("scene", scenes(), ids=lambda scene: scene.name)
def test_what_a_page_shows_works(scene: Scene, datasets: Path, tmp_path: Path) -> None:
    if scene.page.needs and not Path(scene.page.needs).exists():
        pytest.skip(f"no {scene.page.needs}: `python3 tools/run.py test` makes it")
    data = tmp_path / "data"
    data.mkdir()
    for name in scene.data():
        places = [datasets / kind / name for kind in (("deep", "plain") if scene.page.deep else ("plain", "deep"))]
        source = next((place for place in places if place.exists()), None)
        if source is not None:
            shutil.copytree(source, data / name, symlinks=True)
    done = run_in_sandbox(tmp_path, list(scene.steps()), data)
    assert done.returncode == 0, done.stdout[-6000:]


def test_every_statement_is_run_checked_or_excused() -> None:
    """The counts of pages.py are those of the pages, so that no excuse grows and no block is forgotten."""
    excused = Counter(found for one in ALL if one.language in (*RUNS, "windows") and (found := excuse(one)))
    assert excused == {one: one.count for one in pages.EXCUSES}
    known = {*RUNS, *PARSED, "windows"}
    texts = Counter(one.page for one in ALL if one.language not in known and one.page not in pages.OUTPUTS)
    assert texts == pages.TEXTS


@pytest.mark.parametrize("one", [one for one in ALL if one.language in PARSED], ids=str)
def test_what_is_not_run_can_be_read(one: Statement) -> None:
    if one.language == "synopsis":
        for line in re.findall(r"^acqstream (.*(?:\n .*)*)", one.text, re.MULTILINE):
            _check_options(line.split()[0], line)
    elif one.language == "toml":
        assert tomllib.loads(one.text)
    elif one.language == "json":
        assert json.loads(one.text)
    else:
        yaml = pytest.importorskip("yaml")
        assert yaml.safe_load(one.text)


def _check_options(verb: str, line: str) -> None:
    command = VERBS[verb]
    options = {
        name for part in [command, *getattr(command, "commands", {}).values()] for p in part.params for name in p.opts
    }
    options |= {name for p in command.params for name in p.secondary_opts}
    assert set(re.findall(r"--[a-z][a-z-]*", line)) - options == set()


EXCUSED = [one for one in ALL if one.language in RUNS and excuse(one)]


@pytest.mark.parametrize("one", EXCUSED, ids=str)
def test_what_cannot_run_names_what_exists(one: Statement) -> None:
    if one.language == "python":
        compile(one.text, str(one), "exec")
        return
    words = shlex.split(one.text, comments=True)
    if words[0] == "acqstream":
        _check_options(words[1], one.text)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = [name for word in words for name in re.findall(r"^\.\[(.*)\]$", word)]
    assert {extra for names in named for extra in names.split(",")} <= set(extras)
    files = [ROOT / word for word in words if word.startswith(("systemd/", "requirements/", "tools/"))]
    assert [file for file in files if not file.exists()] == []
    source = "".join(file.read_text(encoding="utf-8") for file in files if file.suffix == ".py")
    assert [word for word in words if source and word.startswith("--") and f'"{word}"' not in source] == []
