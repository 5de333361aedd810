"""Proves a dataset in a chunk format by reading every stored chunk, and by the checksums that our writer kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acqstream.formats.check_report import CheckReport, Problem
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.integrity.verification.checksum_check import ChecksumCounts, verify_checksums
from acqstream.model.units import count_text
from acqstream.storage.files.boundary import requested_links
from acqstream.storage.files.small_file import MAX_FILE_BYTES
from acqstream.storage.stores.data_path import ReadPlace, place_of

_NOTES = ("acqstream-volume.json", "acqstream-array.json", "acqstream-hsds.json")
_DOCUMENTS = ("attributes.json", "zarr.json", ".zattrs")  # with a note under the key `acqstream`


@dataclass(slots=True, kw_only=True)
class ChunkVerification:
    """Counts of what was read. arrays counts all levels; missing counts absent chunks, which is not a problem: such
    formats are sparse. payload_bytes are those of the items. problems are the first ones of problem_count. proved and
    not_proved say what the checksums of the container show.
    """

    path: str
    format: str
    arrays: int
    chunks: int
    missing: int
    payload_bytes: int
    proved: list[str] = field(default_factory=list)
    not_proved: list[str] = field(default_factory=list)
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
    before = report.problem_count
    sums = verify_checksums(container, report, has_chunks=counts.chunks + counts.missing > 0)
    if sums is None and counts.missing and is_ours(container):
        lists = "and with them the lists of checksums that name all that was stored"
        text = f"{count_text(counts.missing, 'chunk', 'are')} missing, {lists}: they are in {container.name}.view, "
        text += "which is copied beside the container"
        report.add_problem(container, text)
    proved, not_proved = _told(sums, container, is_sound=report.problem_count == before)
    return ChunkVerification(
        path=str(container),
        format=found.name,
        arrays=counts.arrays,
        chunks=counts.chunks,
        missing=counts.missing,
        payload_bytes=counts.payload_bytes,
        proved=proved,
        not_proved=not_proved,
        notes=report.notes,
        note_count=report.note_count,
        problem_count=report.problem_count,
        problems=report.problems,
    )


def is_ours(container: ReadPlace) -> bool:
    """Whether a note of our writer is in the container; such a mirror keeps lists of checksums."""
    store = container.store(follows_links=requested_links() is True)
    if any(store.size(name) is not None for name in _NOTES):
        return True
    return any(b'"acqstream"' in (store.get(name, 0, MAX_FILE_BYTES) or b"") for name in _DOCUMENTS)


def _told(sums: ChecksumCounts | None, container: ReadPlace, *, is_sound: bool) -> tuple[list[str], list[str]]:
    """What is proved by the checksums, and what is not."""
    if sums is None:
        where = f"; a mirror has it in {container.name}.view beside it" if is_ours(container) else ""
        return [], [f"that this is what was stored: there is no list of checksums{where}"]
    text = f"{count_text(sums.chunks, 'chunk')} and {count_text(sums.documents, 'document', 'are')} "
    text += "as they were stored (XXH3-64)"
    proved = [text] if is_sound and sums.chunks + sums.documents else []
    if not sums.covers_all:
        return proved, ["that every chunk is as it was stored: the lists of checksums are not complete"]
    return proved, []
