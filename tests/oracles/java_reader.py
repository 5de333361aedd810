"""The Java reference library for NDTiff as a reader: run once for many datasets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.oracles.java_program import JavaUnavailable, run_java

__all__ = ["JavaDataset", "JavaUnavailable", "read"]

# The charset of Java on Western Windows: the library decodes axes with it, and what we write must survive that.
CHARSET = "windows-1252"


@dataclass(slots=True)
class JavaDataset:
    """What the library found in one dataset. images: as `ReadNdtiff.java` prints them."""

    summary: Mapping[str, Any] = field(default_factory=dict)
    images: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""


def read(datasets: Sequence[Path], work_folder: Path, *, timeout_s: float = 120) -> dict[Path, JavaDataset]:
    """Every dataset as the Java library reads it, from one start of Java. Raises JavaUnavailable."""
    output = run_java("ReadNdtiff", "ndtiff.xml", datasets, work_folder, charset=CHARSET, timeout_s=timeout_s)
    found = {path: JavaDataset() for path in datasets}
    for line in output.splitlines():
        values = json.loads(line)
        dataset = found[Path(values.pop("dataset"))]
        if "error" in values:
            dataset.error = values["error"]
        elif "summary" in values:
            dataset.summary = values["summary"]
        else:
            dataset.images.append(values)
    return found
