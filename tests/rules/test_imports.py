"""Who imports whom, and what an import costs."""

from __future__ import annotations

import ast
import graphlib
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 600  # of a machine on which many tests run
OTHERS = "ignore:invalid escape sequence:DeprecationWarning"  # of other packages, when they are compiled
OPTIONAL = {  # module -> the extra it needs
    "acqstream.client.pymmcore": "pymmcore_plus",
    "acqstream.client.pycromanager.acquisition": "pycromanager",
    "acqstream.dataset.xarray_backend": "xarray",
}

SOURCES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "acqstream").rglob("*.py"))
    if path.name != "__main__.py"  # importing that is harmless, but says nothing
}


def loaded_by(statement: str) -> set[str]:
    """Names of all modules in a fresh interpreter after `statement`."""
    code = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-W", "error", "-W", OTHERS, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_import_contracts_hold():
    """In a process of its own: it turns off the loggers of everything else."""
    code = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_contract_says_why_and_what_to_do_instead():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    contract = "[[tool.importlinter.contracts]]"
    told = re.findall(rf"^# Why: .+\n(?:# .+\n)*# Instead: .+\n(?:# .+\n)*{re.escape(contract)}", text, re.MULTILINE)
    assert len(told) == text.count(contract) > 0


def test_every_module_can_be_imported():
    absent = {module for module, needed in OPTIONAL.items() if importlib.util.find_spec(needed) is None}
    modules = SOURCES.keys() - absent
    assert modules <= loaded_by("\n".join(f"import {module}" for module in sorted(modules)))


def test_every_module_can_be_imported_first():
    """Imports that run with their module make no circle: one shows only when one of its members comes first."""
    needed = {module: set(needs_of(module)) for module in SOURCES}
    assert sum(map(len, needed.values())) > len(needed)
    assert len(list(graphlib.TopologicalSorter(needed).static_order())) == len(needed)  # CycleError names the circle


def needs_of(module: str) -> Iterator[str]:
    """Our modules that must have run before `module` has.

    Its own packages have begun before it, and need not have ended if only modules in them are asked for.
    """
    for name in names_imported(ast.parse(SOURCES[module].read_text(encoding="utf-8")).body):
        target = name if name in SOURCES else name.rpartition(".")[0]
        parents = [target.rsplit(".", depth)[0] for depth in range(1, target.count(".") + 1)]
        others = [parent for parent in parents if not f"{module}.".startswith(f"{parent}.")]
        yield from (one for one in (target, *others) if one in SOURCES and one != module)


def names_imported(statements: Iterable[ast.AST]) -> Iterator[str]:
    """Dotted names in imports that run with the module: those in functions run later, those for types never."""
    for node in statements:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from names_imported(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from names_imported(ast.iter_child_nodes(node))


@pytest.mark.parametrize(
    ("statement", "too_heavy"),
    [
        ("import acqstream", {"numpy", "zmq", "tifffile", "pydantic", "typer", "rich", "msgpack", "psutil"}),
        (
            "import acqstream.daemon.server",
            {"tifffile", "typer", "rich", "dask", "xarray", "blosc", "numcodecs", "acqstream.grid.kernels"},
        ),
        ("import acqstream.client.daemon_requests", {"numpy", "tifffile", "pydantic", "typer", "rich"}),
        ("import acqstream.cli.main", {"numpy", "zmq", "tifffile", "pydantic", "msgpack", "psutil"}),
        ("import acqstream.client.producer", {"tifffile", "pydantic", "typer", "rich", "psutil"}),
        (
            "import acqstream.dataset.dataset",
            {"zmq", "msgpack", "pydantic", "typer", "rich", "psutil", "blosc", "numcodecs", "dask", "PIL"},
        ),
    ],
)
def test_an_import_loads_no_more_than_it_needs(statement, too_heavy):
    module = statement.removeprefix("import ")
    assert module in SOURCES
    assert not loaded_by(statement) & too_heavy


def test_the_daemon_loads_no_codec_and_no_chunk_format():
    """The process of the views does. The daemon imports a format only to check a request that names it."""
    module = "acqstream.daemon.server"
    assert module in SOURCES
    chunk_formats = [f"acqstream.formats.{path.parent.name}" for path in ROOT.glob("acqstream/formats/*/codec.py")]
    assert chunk_formats
    avoided = ("acqstream.codecs", "acqstream.views.pyramid_view", *chunk_formats)
    loaded = loaded_by(f"import {module}")
    assert not [name for name in loaded for other in avoided if name == other or name.startswith(f"{other}.")]
