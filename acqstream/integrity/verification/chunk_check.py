"""Proves a dataset in a chunk format by reading and checking every stored chunk.

The format has no checksums to compare with, so nothing is proved about the frames as sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acqstream.formats.check_report import CheckReport, Problem
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.storage.read_place import place_of


@dataclass(slots=True, kw_only=True)
class ChunkVerification:
    """Counts of what was read. arrays counts all levels; missing counts absent chunks, which is not a problem: such
    formats are sparse. payload_bytes are those of the items. problems are the first ones of problem_count.
    """

    path: str
    format: str
    arrays: int
    chunks: int
    missing: int
    payload_bytes: int
    notes: list[str] = field(default_factory=list)
    note_count: int = 0
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Nothing is wrong with what there is."""
        return not self.problem_count


def verify_chunks(
    path: Path, found: ChunkFormat[Any], on_progress: Callable[[str, int, int], None] | None = None
) -> ChunkVerification:
    """Read all chunks of the container at `path`, all of its arrays. Raises StorageError."""
    report = CheckReport() if on_progress is None else CheckReport(on_progress)
    container = found.folder(place_of(path))
    counts = found.check(container, report)
    return ChunkVerification(
        path=str(container),
        format=found.name,
        arrays=counts.arrays,
        chunks=counts.chunks,
        missing=counts.missing,
        payload_bytes=counts.payload_bytes,
        notes=report.notes,
        note_count=report.note_count,
        problem_count=report.problem_count,
        problems=report.problems,
    )
