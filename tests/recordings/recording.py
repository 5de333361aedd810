"""What a run of the tests finds, beside what was recorded before: JSON files in this folder.

`ACQSTREAM_RECORD=1 pytest tests/recordings` records; without the variable nothing is written. What differs between two
runs of the same code is masked by name (MASKED_IN_FILES, and test_wire.MASKED), and nothing else is.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
IS_RECORDING = os.environ.get("ACQSTREAM_RECORD") == "1"
MAX_DIFFERENCES = 12
# Fields of JSON files that name a moment, a machine or a version.
MASKED_IN_FILES = (
    *("started_at", "changed_at", "finished_at", "created", "modified", "lastModified"),
    "dataset_id",  # of arrays a digest of their path
    *("python", "numpy", "xxhash", "system"),
    *("io", "names_forced"),  # the file system decides
    *("peak_slabs", "memory_bytes"),  # threads decide; the memory of mirrors is to change
)
_VALUE = r'("(?:[^"\\]|\\.)*"|-?[0-9][0-9.e+-]*|true|false|null)'
_FIELD = re.compile(rf'("(?:{"|".join(MASKED_IN_FILES)})": ?){_VALUE}'.encode())


def masked(text: bytes) -> bytes:
    """The text of a JSON file with a token in the place of each value of MASKED_IN_FILES."""
    return _FIELD.sub(rb'\1"..."', text)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def load(name: str) -> dict[str, Any]:
    path = HERE / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def save(name: str, content: Mapping[str, Any]) -> None:
    """A line for each item of a list, and for each value of a map."""
    texts = []
    for key, value in sorted(content.items()):
        if isinstance(value, list):
            text = "[\n " + ",\n ".join(json.dumps(item, sort_keys=True, ensure_ascii=False) for item in value) + "\n]"
        else:
            text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
        texts.append(f"{json.dumps(key, ensure_ascii=False)}: {text}")
    (HERE / f"{name}.json").write_text("{\n" + ",\n".join(texts) + "\n}\n", encoding="utf-8")


def check(name: str, key: str, found: Any, is_compared: Callable[[str], bool] = lambda line: True) -> None:
    """Compare with what `name`.json has under `key`; when recording, write it there.

    is_compared: of a difference, False where it means nothing here.
    """
    recorded = load(name)
    if IS_RECORDING:
        save(name, {**recorded, key: found})
        return
    assert key in recorded, f"{name}.json has no {key!r}; to record it: run this test with ACQSTREAM_RECORD=1"
    lines = [line for line in differences(recorded[key], json.loads(json.dumps(found))) if is_compared(line)]
    more = f"\n... and {len(lines) - MAX_DIFFERENCES} more" if len(lines) > MAX_DIFFERENCES else ""
    assert not lines, f"{key} differs from {name}.json:\n" + "\n".join(lines[:MAX_DIFFERENCES]) + more


def check_keys(name: str, keys: Collection[str]) -> None:
    """Nothing is recorded that no test looks at; when recording, that is removed."""
    recorded = load(name)
    if IS_RECORDING:
        save(name, {key: recorded[key] for key in keys if key in recorded})
        return
    assert sorted(recorded) == sorted(keys)


def differences(recorded: Any, found: Any, place: str = "") -> Iterator[str]:
    """One line for each value that was changed, was added or is missing."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        for key in sorted({*recorded, *found}):
            inner = f"{place} / {key}" if place else key
            if key not in found:
                yield f"{inner}: is missing, recorded {recorded[key]!r:.300}"
            elif key not in recorded:
                yield f"{inner}: is new: {found[key]!r:.300}"
            else:
                yield from differences(recorded[key], found[key], inner)
    elif isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        for number, (old, new) in enumerate(zip(recorded, found, strict=True)):
            yield from differences(old, new, f"{place} [{number}]")
    elif recorded != found:
        yield f"{place}: is {found!r:.600}, recorded {recorded!r:.600}"
