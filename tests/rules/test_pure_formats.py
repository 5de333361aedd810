"""Chunk formats and the engine of mirrors see no file system: stores and places alone open files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PURE = ("layout", "metadata", "codec")
FORMATS = sorted(path.parent for path in (ROOT / "acqstream" / "formats").glob("*/codec.py"))
MODULES = {"os", "io", "pathlib", "shutil", "tempfile", "glob", "socket", "subprocess", "mmap"}
# A protocol, parsing of JSON texts, the places of chunks in an object of a store, and the types of runs of bytes.
STORES = {
    "acqstream.storage.files.disk",
    "acqstream.storage.stores.store",
    "acqstream.storage.files.small_file",
    "acqstream.storage.stores.shard_index",
}
SHARDS = {"acqstream.storage.stores.shard_index"}  # they see a store alone
CALLS = {
    "exists",
    "iterdir",
    "is_dir",
    "is_file",
    "stat",
    "read_bytes",
    "write_bytes",
    "read_text",
    "write_text",
    "unlink",
}
CALLS |= {"mkdir", "rmdir", "glob", "rglob", "resolve", "rename", "touch"}
CALLS |= {"lstat", "samefile", "is_symlink", "readlink", "symlink_to", "walk"}
READERS = {  # modules of formats that may name a path, and why; the package of the log's format is one by itself
    "check_report": "reports files of the log's format, too, which are paths",
    "registry": "takes the path of a user, and hands it to the log's format",
}
PLACES = (
    STORES
    | SHARDS
    | {"acqstream.storage.stores.data_path", "acqstream.storage.files.boundary", "acqstream.storage.files.read_file"}
)
LOG_FORMAT = "ndtiff"  # written by the daemon and read live by descriptors kept open: docs/decisions/035
EDGES = {  # modules of mirrors that may name a path, and why
    "array_copy": "opens the source of a copy and its container, which a user names",
    "comparison": "opens the dataset and the mirror that a user compares, and looks for a dataset beside its mirror",
    "mirror_container": "keeps mirror.json in the view's own folder, makes the store of a mirror, and removes one",
    "mirror_plan": "names the folder of a mirror, and counts processors",
    "mirror_tasks": "opens the dataset in another process",
    "mirror_view": "gets the folders of a view from its source, and makes its container",
    "reference_view": "makes the container in the folder that its source names",
    "reference_writer": "makes the store of a folder, and a link to the dataset, which no store can",
    "run_end": "watches a dataset's folder until its end, and looks for the mirrors beside it",
    "slab_comparison": "counts processors",
    "task_runner": "ends a process",
    "view_worker": "is a process of its own",
}


def imports_of(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def file_system_uses(path: Path) -> list[str]:
    """Imports of modules that reach the file system, and calls that do."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [name for name in imports_of(tree) if name.partition(".")[0] in MODULES]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Name) and function.id in ("open", "ReadFile", "Path"):
                found.append(f"{function.id}()")
            if isinstance(function, ast.Attribute) and function.attr in CALLS:
                found.append(f".{function.attr}()")
    return found


def closure(start: Path) -> set[Path]:
    """A module and all modules of acqstream.formats that it imports."""
    found, todo = set(), [start]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found.add(path)
        for name in imports_of(ast.parse(path.read_text(encoding="utf-8"))):
            other = ROOT.joinpath(*name.split(".")).with_suffix(".py")
            if name.startswith("acqstream.formats.") and other.exists():
                todo.append(other)
    return found


def test_layouts_metadata_and_codecs_are_pure() -> None:
    assert FORMATS
    for folder in FORMATS:
        for name in PURE:
            for module in closure(folder / f"{name}.py"):
                assert not file_system_uses(module), module
                storage = {
                    one for one in imports_of(ast.parse(module.read_text())) if one.startswith("acqstream.storage")
                }
                assert storage <= STORES, (module, storage)


def test_chunk_formats_see_places_only() -> None:
    top = ROOT / "acqstream" / "formats"
    modules = {path.relative_to(top): path for path in top.rglob("*.py")}
    modules = {name: path for name, path in modules.items() if name.parts[0] != LOG_FORMAT}
    assert {"n5", "wkw"} <= {name.parts[0] for name in modules}
    used = {name.with_suffix("").as_posix(): uses for name, path in modules.items() if (uses := file_system_uses(path))}
    assert used.keys() == READERS.keys(), used
    for path in modules.values():
        storage = {
            name for name in imports_of(ast.parse(path.read_text("utf-8"))) if name.startswith("acqstream.storage")
        }
        assert storage <= PLACES, (path, storage)


def test_every_chunk_format_with_a_layout_has_the_same_names() -> None:
    for folder in FORMATS:
        names = {path.stem for path in folder.glob("*.py")}
        assert {*PURE, "foreign"} <= names, folder


def test_the_engine_of_mirrors_sees_stores_only() -> None:
    modules = {path.stem: path for path in (ROOT / "acqstream" / "mirrors").glob("*.py")}
    used = {name: uses for name, path in modules.items() if (uses := file_system_uses(path))}
    assert used.keys() == EDGES.keys(), used
