"""The tree of exceptions at the top of acqstream/errors.py is the truth."""

from __future__ import annotations

import inspect
import pickle
import re

from acqstream import errors

LINE = re.compile(r"^(?P<branch>[ │├└─]*)(?P<name>[A-Z]\w+)(?P<text>.*)$")
ALSO = re.compile(r"also an? (\w+Error)\b")
INDENT = 4  # columns a level of the tree


def drawn_tree() -> dict[str, tuple[str | None, str]]:
    """Name -> (name of its parent in the drawing, text beside it)."""
    tree: dict[str, tuple[str | None, str]] = {}
    above: list[str] = []  # the names on the way to the current line
    for line in inspect.cleandoc(errors.__doc__ or "").splitlines()[2:]:
        match = LINE.match(line)
        assert match, f"not a line of the tree: {line!r}"
        level = len(match["branch"]) // INDENT
        del above[level:]
        assert match["name"] not in tree, f"{match['name']} is drawn twice"
        tree[match["name"]] = (above[-1] if above else None, match["text"])
        above.append(match["name"])
    return tree


def defined_classes() -> dict[str, type[BaseException]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, BaseException) and value.__module__ == errors.__name__
    }


def test_every_class_is_drawn_and_every_drawn_class_exists():
    assert set(drawn_tree()) == set(defined_classes())


def test_classes_descend_from_what_is_drawn():
    classes = defined_classes()
    for name, (parent, _) in drawn_tree().items():
        expected = classes[parent] if parent else Exception
        assert expected in classes[name].__bases__, f"{name} is drawn below {expected.__name__}"


def test_builtin_parents_are_named():
    for name, (_, text) in drawn_tree().items():
        bases = defined_classes()[name].__bases__
        builtin = {base.__name__ for base in bases if base.__module__ == "builtins" and base is not Exception}
        assert set(ALSO.findall(text)) == builtin, f"{name}: text {text!r}, bases {builtin}"


def test_every_class_says_what_it_is_and_has_a_code():
    for name, cls in defined_classes().items():
        assert cls.__dict__.get("__doc__"), name
        assert re.fullmatch(r"[a-z_]+", getattr(cls, "code", "")), name


def test_errors_of_reading_and_of_the_disk_come_back_from_another_process():
    full = errors.StorageError.wrap(OSError(28, "No space left on device"), "/data/cells", "cannot write")
    full.number = 7
    for error in (
        full,
        errors.CorruptDataset("is torn", path="/data/cells", offset=3),
        errors.ConfigError("no", code="x"),
    ):
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
    again = pickle.loads(pickle.dumps(full))  # noqa: S301 - our own
    assert (again.errno, again.filename, again.number) == (28, "/data/cells", 7)
