"""Golden HSDS trees."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[2] / "golden" / "hsds"
BUCKET = "bkt"
EXPECTED: Mapping[str, Any] = json.loads((GOLDEN / "expected.json").read_text())
TREES = [*EXPECTED]


def bucket_files(tree: str) -> list[str]:
    """Keys of all files in the bucket of a golden tree."""
    bucket = GOLDEN / tree / BUCKET
    return sorted(path.relative_to(bucket).as_posix() for path in bucket.rglob("*") if path.is_file())
