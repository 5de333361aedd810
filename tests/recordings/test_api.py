"""Signatures, help, exit codes and texts of errors are those recorded; bad_inputs.json has the inputs."""

from __future__ import annotations

import inspect
import itertools
import json
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.cli.main import main
from tests.live.daemon_process import DaemonProcess
from tests.recordings.recording import HERE, check, check_keys

GOLDEN = Path(__file__).parents[1] / "golden"
INPUTS = json.loads((HERE / "bad_inputs.json").read_text(encoding="utf-8"))
DOCUMENTED = {
    "acqstream": acqstream.__all__,
    "acqstream.client.pycromanager": ("Acquisition", "PendingEvents", "forward"),
    "acqstream.client.pymmcore": ("install", "streaming"),
    "acqstream.dataset.napari_live": ("live_layers",),
}
MASKED = re.compile(r"20[0-9-]{8}T[0-9:.]{8,}\+00:00|pid [0-9]+|0x[0-9a-f]{6,}|[0-9.]+ [kMGT]?B (?=left)|:[0-9]{5}\b")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("api") / "data") as process:
        yield process


def members(kind: type) -> Iterator[tuple[str, str]]:
    for name, member in inspect.getmembers_static(kind):
        if not name.startswith("_") or name == "__init__":
            plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if getattr(plain, "__module__", None) or not callable(plain):  # not of a built-in class
                yield name, str(inspect.signature(plain)) if callable(plain) else type(plain).__name__


def surface(value: Any) -> Any:
    if isinstance(value, type):
        return dict(members(value))
    return str(inspect.signature(value)) if callable(value) else type(value).__name__


def test_signatures_are_those_recorded(daemon: DaemonProcess) -> None:
    with acqstream.create("signatures", endpoint=daemon.endpoint, mirrors=[]) as run:
        run.put(np.zeros((4, 4), "u2"), time=0)
    with acqstream.open(run.path) as dataset:
        made = (run, run.receipt, run.progress, dataset, dataset.levels[0])
        found = {type(value).__name__: surface(type(value)) for value in made}
    with warnings.catch_warnings(action="ignore"):  # of packages that these modules load
        for module, names in DOCUMENTED.items():
            found |= {f"{module}.{name}": surface(getattr(import_module(module), name)) for name in names}
    check("api", "signatures", found)


def test_help_is_the_one_recorded(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main_help = called(["--help"], capsys)[1]
    verbs = re.findall(r"^  ([a-z]+)  ", main_help.partition("Commands:")[2], re.MULTILINE)
    assert len(verbs) >= 19
    found = {verb: called([verb, "--help"], capsys)[1].splitlines() for verb in verbs}
    check("api", "help", {"acqstream": main_help.splitlines(), **found})


def called(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out + err


def plain(text: str, names: dict[str, str]) -> str:
    for name, token in names.items():
        text = text.replace(name, token)
    return MASKED.sub("...", text)


def outcome(expression: str, names: dict[str, Any]) -> str:
    try:
        value = eval(expression, {**names})  # noqa: S307 - from our own file
    except Exception as error:  # noqa: BLE001 - whatever it raises is what is recorded
        return f"{type(error).__name__}: {error}"
    return f"no error: {type(value).__name__}"


def test_texts_for_bad_arguments_are_those_recorded(
    daemon: DaemonProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):  # napari would have a window
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ACQSTREAM_ENDPOINT", daemon.endpoint)
    monkeypatch.chdir(tmp_path)
    stack = Path(shutil.copytree(GOLDEN / "ndtiff" / "py_uint16" / "data", tmp_path / "stack"))
    tokens = {sys.executable: "PYTHON", str(tmp_path): "TMP", str(daemon.home): "HOME", str(daemon.port): "PORT"}
    lines = {line: called(shlex.split(line), capsys) for line in INPUTS["command line"]}
    check(
        "api", "command line", {line: [code, *plain(text, tokens).splitlines()] for line, (code, text) in lines.items()}
    )
    with acqstream.create("bad", endpoint=daemon.endpoint, mirrors=[]) as run, acqstream.open(stack) as dataset:
        names = {"create": acqstream.create, "open": acqstream.open, "run": run, "dataset": dataset, "np": np}
        texts = {line: plain(outcome(line, names), tokens) for line in INPUTS["python"]}
    check("api", "python", texts)


@pytest.mark.parametrize("kind", ["damaged files"])
def test_texts_for_damaged_files_are_those_recorded(kind: str, tmp_path: Path) -> None:
    """Each file of small golden containers: cut, emptied, overwritten at its start, and missing."""
    found = {}
    expression = "[level.read().sum() for level in open(folder).levels]"
    for source in INPUTS[kind]:
        files = sorted(path for path in (GOLDEN / source).rglob("*") if path.is_file())
        for file, change in itertools.product(files, ("cut", "empty", "overwritten", "missing")):
            folder = Path(shutil.copytree(GOLDEN / source, tmp_path / "damaged"))
            name = file.relative_to(GOLDEN / source)
            damage(folder / name, change)
            text = outcome(expression, {"open": acqstream.open, "folder": folder})
            found[f"{source}: {name.as_posix()} {change}"] = plain(text, {str(tmp_path): "TMP"})
            shutil.rmtree(folder)
    check("api", kind, found)


def damage(path: Path, change: str) -> None:
    content = path.read_bytes()
    if change == "missing":
        path.unlink()
    else:
        changed = {"cut": content[: len(content) // 2], "empty": b"", "overwritten": b"\xff" * 16 + content[16:]}
        path.write_bytes(changed[change])


def test_nothing_else_is_recorded() -> None:
    check_keys("api", ["signatures", "help", "command line", "python", "damaged files"])
