"""`acqstream verify`: prove every frame and every invariant of a dataset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acqstream.cli.output import DatasetArgument, ExitCode, JsonOption, print_json, progress_bar
from acqstream.model.units import count_text, size_text

if TYPE_CHECKING:
    from acqstream.formats.check_report import Problem
    from acqstream.integrity.container_proof import ChunkVerification
    from acqstream.integrity.verify import Verification
    from acqstream.model.receipt import MissingFrames
    from acqstream.model.view_spec import MirrorResult

_PROBLEMS_SHOWN = 100
_RANGES_SHOWN = 10


def verify(
    path: DatasetArgument,
    *,
    follow_links: Annotated[
        bool, typer.Option("--follow-links", help="Read what links in N5 and WKW have elsewhere.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Prove every frame and every invariant of a dataset.

    Reads all of it, on any copy; nothing is changed. Ends with 0 only if all is well.
    """
    from acqstream.formats.chunk_format import ChunkFormat
    from acqstream.formats.registry import find_format
    from acqstream.integrity.container_proof import ChunkVerification, verify_chunks
    from acqstream.integrity.verify import verify as verify_dataset
    from acqstream.storage.files.boundary import following_links

    with progress_bar() as bar:
        task = bar.add_task("opening", total=None)

        def show(text: str, done: int, total: int) -> None:
            bar.update(task, description=text, completed=done, total=total or None)

        found = find_format(path)
        result: Verification | ChunkVerification
        mirrors: tuple[MirrorResult, ...] = ()
        if isinstance(found, ChunkFormat):
            with following_links(follow_links):
                result = _with_log(verify_chunks(path, found, show), show)
        else:
            result = _with_levels(verify_dataset(path, show), show)
            result, mirrors = _with_mirrors(result)
    if as_json:
        more = {} if isinstance(result, ChunkVerification) else {"mirrors": [asdict(one) for one in mirrors]}
        print_json({"ok": result.ok, **asdict(result), **more})
    else:
        verdict = _chunk_verdict(result) if isinstance(result, ChunkVerification) else _verdict(result)
        _print_result(result, verdict, mirrors)
    if not result.ok:
        raise typer.Exit(ExitCode.INCOMPLETE)


def _with_log(result: ChunkVerification, on_progress: Callable[[str, int, int], None]) -> ChunkVerification:
    """The result, with what the frames of the dataset show where that lies beside its mirror."""
    from acqstream.formats.check_report import Problem
    from acqstream.mirrors.comparison import prove_by_log

    found = prove_by_log(Path(result.path), lambda done, total: on_progress("comparing frames", done, total))
    wrong = [Problem(result.path, f"{name} differs from {found.dataset}") for name in found.compared.named]
    if found.failure:
        wrong.append(Problem(result.path, f"the mirror failed half-way: {found.failure}"))
    return replace(
        result,
        proved=[*result.proved, *found.proved],
        not_proved=[*result.not_proved, *found.not_proved],
        problems=[*result.problems, *wrong],
        problem_count=result.problem_count + found.compared.different + bool(found.failure),
    )


def _with_levels(result: Verification, on_progress: Callable[[str, int, int], None]) -> Verification:
    """The result, with what the tiles of lower levels show: each is made again from those below."""
    from acqstream.formats.check_report import Problem
    from acqstream.views.level_check import check_levels

    if result.levels < 2:
        return result
    found = check_levels(Path(result.path), lambda done, total: on_progress("comparing levels", done, total))
    proved = f"levels: {count_text(found.tiles, 'tile')} in "
    proved += f"{count_text(found.levels, 'lower level', 'are')} what the rule makes of those below"
    return replace(
        result,
        proved=[*result.proved, proved] if found.tiles and not found.problem_count else result.proved,
        not_proved=[*result.not_proved, f"pixels of lower levels: {found.reason}"]
        if found.reason
        else result.not_proved,
        problems=[*result.problems, *(Problem(path, text) for path, text in found.problems)],
        problem_count=result.problem_count + found.problem_count,
    )


def _with_mirrors(result: Verification) -> tuple[Verification, tuple[MirrorResult, ...]]:
    """The results of its mirrors and levels, or a note. verify proves nothing of them: they are never problems."""
    from acqstream.errors import CorruptDataset, StorageError
    from acqstream.mirrors.run_end import mirror_results

    try:
        return result, mirror_results(Path(result.path))
    except (CorruptDataset, StorageError) as error:
        notes = [*result.notes, f"how its mirrors ended cannot be read: {error}"]
        return replace(result, notes=notes, note_count=result.note_count + 1), ()


def _print_result(result: Verification | ChunkVerification, verdict: str, mirrors: tuple[MirrorResult, ...]) -> None:
    print(f"{result.path}: {verdict}")
    _print_list("proved", result.proved)
    _print_list("not proved", result.not_proved)
    _print_list("notes", result.notes, result.note_count)
    _print_list("mirrors", [f"{mirror.name}: {mirror.text}" for mirror in mirrors])
    missing = [] if isinstance(result.missing, int) else result.missing  # chunks that are not stored are no loss
    _print_list("missing", [_range_text(gap) for gap in missing[:_RANGES_SHOWN]], len(missing))
    shown = [_problem_text(problem, result.path) for problem in result.problems[:_PROBLEMS_SHOWN]]
    _print_list("problems", shown, result.problem_count)


def _chunk_verdict(result: ChunkVerification) -> str:
    verdict = count_text(result.problem_count, "problem") if result.problem_count else "all is well"
    read = f"{count_text(result.chunks, 'chunk')} in {count_text(result.arrays, 'array')}, {result.missing:,} missing"
    return f"{verdict}; {read}, {size_text(result.payload_bytes)}"


def _verdict(result: Verification) -> str:
    wrong = []
    if result.problem_count:
        wrong.append(count_text(result.problem_count, "problem"))
    if result.missing_count:
        wrong.append(f"{count_text(result.missing_count, 'frame')} missing")
    text = ", ".join(wrong) or "all is well"
    state = "being written" if result.writing else result.state or "another writer's"
    skipped = f", {result.skipped:,} skipped" if result.skipped else ""
    return (
        f"{text}; {count_text(result.frames, 'frame')}{skipped}, {size_text(result.payload_bytes)} of pixels, {state}"
    )


def _print_list(heading: str, lines: list[str], count: int | None = None) -> None:
    if not lines:
        return
    print(heading)
    for line in lines:
        print(f"  {line}")
    if count is not None and count > len(lines):
        print(f"  ... and {count - len(lines):,} more")


def _range_text(gap: MissingFrames) -> str:
    last = gap.first + gap.count - 1
    numbers = f"frame {gap.first}" if gap.count == 1 else f"frames {gap.first} to {last}"
    return f"{numbers}: {gap.reason}"


def _problem_text(problem: Problem, folder: str) -> str:
    path = Path(problem.path)
    where = str(path.relative_to(folder)) if path.is_relative_to(folder) and path != Path(folder) else problem.path
    if problem.offset is not None:
        where += f" at byte {problem.offset}"
    if problem.frame is not None:
        where += f", frame {problem.frame}"
    return f"{where}: {problem.text}"
