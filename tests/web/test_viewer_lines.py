"""Lines to copy: whatever a dataset is called, and whatever its format."""

from __future__ import annotations

import ast
import json
import shlex
from urllib.parse import unquote

import pytest

from acqstream.model.units import shell_word
from acqstream.web.page.dataset_list import viewer_lines

BASE = "http://127.0.0.1:5280"
CLIENT = "https://client.example/"


def lines_of(name: str, format_name: str, path: str = "/data/x") -> dict[str, str]:
    lines = viewer_lines(name, format_name, path, BASE, CLIENT)
    assert all(("href" in one) != ("line" in one) for one in lines)
    return {one["label"]: one.get("href") or one["line"] for one in lines}


def test_frames_are_offered_to_every_viewer() -> None:
    lines = lines_of("my cells", "ndtiff")
    assert lines["Neuroglancer"] == "/view/my%20cells"
    assert f'"{BASE}/data/my%20cells/ome.zarr"' in lines["Python elsewhere"]
    assert any(line == f"{BASE}/data/my%20cells/n5" for line in lines.values())


@pytest.mark.parametrize(("format_name", "kind"), [("n5", "n5"), ("ome-zarr", "zarr3"), ("precomputed", "precomputed")])
def test_mirrors_are_served_as_they_are(format_name: str, kind: str) -> None:
    link = lines_of("a.x", format_name)["Neuroglancer"]
    assert link.startswith(f"{CLIENT}#!")
    state = json.loads(unquote(link.partition("#!")[2]))
    assert state["layers"][0]["source"] == f"{BASE}/data/a.x/|{kind}:"
    assert state["prefetch"] is False


def test_a_format_without_a_viewer() -> None:
    assert set(lines_of("a.wkw", "wkw")) == {"Python here", "napari here"}


@pytest.mark.parametrize("name", ["a", "µ cells", 'quote"d', "back\\slash", "a'b"])
def test_lines_of_python_are_python(name: str) -> None:
    for label, line in lines_of(name, "ndtiff", f"/data/{name}").items():
        if label.startswith("Python"):
            ast.parse(line)
    found = ast.parse(lines_of(name, "ndtiff", f"/data/{name}")["Python here"])
    texts = [node.value for node in ast.walk(found) if isinstance(node, ast.Constant)]
    assert texts == [f"/data/{name}"]


@pytest.mark.parametrize("name", ["a", "two words", "a'b", "$(touch evil)", "`id`", 'a"b', "a;b"])
def test_a_line_for_a_shell_is_one_word(name: str) -> None:
    assert shlex.split(f"acqstream view {shell_word(f'/data/{name}')}") == ["acqstream", "view", f"/data/{name}"]
    line = lines_of(name, "ndtiff", f"/data/{name}")["napari here"]
    assert shlex.split(line) == ["acqstream", "view", f"/data/{name}"]


def test_a_path_of_windows_has_double_quotes() -> None:
    assert shell_word("C:\\data\\my cells") == '"C:\\data\\my cells"'
