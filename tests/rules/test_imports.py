"""Who imports whom, and what an import costs."""

from __future__ import annotations

import importlib.util
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import acqstream

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 50
OPTIONAL = {  # module -> the extra it needs
    "acqstream.client.pymmcore": "pymmcore_plus",
    "acqstream.client.pycromanager.acquisition": "pycromanager",
    "acqstream.dataset.xarray_backend": "xarray",
}

MODULES = sorted(
    info.name
    for info in pkgutil.walk_packages(acqstream.__path__, "acqstream.")
    if not info.name.endswith("__main__")  # importing that is harmless, but says nothing
)


def loaded_by(statement: str) -> set[str]:
    """Names of all modules in a fresh interpreter after `statement`."""
    code = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_import_contracts_hold(monkeypatch, capsys):
    from importlinter.cli import lint_imports

    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))
    code = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert code == 0, capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_every_module_can_be_imported_first(module):
    # Each in its own interpreter: a circle of imports shows only from one of its members.
    needed = OPTIONAL.get(module)
    if needed and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    assert module in loaded_by(f"import {module}")


@pytest.mark.parametrize(
    ("statement", "too_heavy"),
    [
        ("import acqstream", {"numpy", "zmq", "tifffile", "pydantic", "typer", "rich", "msgpack", "psutil"}),
        ("import acqstream.daemon.server", {"tifffile", "typer", "rich", "dask", "xarray", "numcodecs"}),
        ("import acqstream.client.producer", {"tifffile", "pydantic", "typer", "rich", "psutil"}),
        (
            "import acqstream.dataset.dataset",
            {"zmq", "msgpack", "pydantic", "typer", "rich", "psutil", "numcodecs", "dask", "PIL"},
        ),
    ],
)
def test_an_import_loads_no_more_than_it_needs(statement, too_heavy):
    module = statement.removeprefix("import ")
    if module not in {"acqstream", *MODULES}:
        pytest.skip(f"{module} does not exist")
    assert not loaded_by(statement) & too_heavy
