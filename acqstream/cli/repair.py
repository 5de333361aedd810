"""`acqstream repair`: a torn or lost index is rebuilt."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acqstream.cli.output import DatasetArgument, ExitCode, print_json
from acqstream.model.units import count_text

if TYPE_CHECKING:
    from acqstream.integrity.index_frames import Findings, LevelReport, RepairReport

_SHOWN = 20  # findings of each kind; --json has more


def repair(
    path: DatasetArgument,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Do everything but write.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Even if another program's files changed in the last seconds.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The report as one JSON document on stdout.")] = False,
) -> None:
    """Rebuild a torn or lost index.

    Works for datasets of any NDTiff writer, versions 2 and 3. Pixels are never touched; the old index is kept. Ends
    with 3 if frames are lost.
    """
    from acqstream.integrity.repair import repair as repair_dataset

    report = repair_dataset(path, dry_run=dry_run, force=force)
    if as_json:
        print_json(
            {
                **asdict(report),
                **{name: _total(report, name) for name in ("kept", "recovered", "guessed", "lost", "dropped")},
                "nothing_to_do": report.is_whole,
            }
        )
    else:
        _print_report(report)
    if report.lost:
        raise typer.Exit(ExitCode.INCOMPLETE)


def _total(report: RepairReport, name: str) -> int:
    counts = [getattr(level, name) for level in report.levels]
    return sum(count if isinstance(count, int) else len(count) for count in counts)


def _print_report(report: RepairReport) -> None:
    print(f"path       {report.path}{'  (dry run: nothing was written)' if report.dry_run else ''}")
    for level in report.levels:
        _print_level(level, folder=len(report.levels) > 1, dry_run=report.dry_run)
    for note in report.notes:
        print(f"note       {note}")
    if report.is_whole:
        print("result     nothing to do")
    else:
        print(f"result     {'would be repaired' if report.dry_run else 'repaired'}")


def _print_level(level: LevelReport, *, folder: bool, dry_run: bool) -> None:
    if folder:
        print(f"level      {Path(level.folder).name}")
    print(f"kept       {count_text(level.kept, 'frame')}")
    print(f"recovered  {count_text(level.recovered, 'frame')}")
    _print_findings("guessed", level.guessed)
    _print_findings("dropped", level.dropped)
    _print_findings("lost", level.lost)
    for name in level.finished_stacks:
        print(f"finished   {name}")
    for note in level.notes:
        print(f"note       {note}")
    if level.backup:
        print(f"backup     the old index {'would be' if dry_run else 'is'} kept as {level.backup}")


def _print_findings(title: str, findings: Findings) -> None:
    if not len(findings):
        return
    print(f"{title:<10} {len(findings)}")
    for finding in findings.first[:_SHOWN]:
        print(f"           {finding.file} at byte {finding.offset}: {finding.text}")
    if len(findings) > _SHOWN:
        print(f"           ... and {len(findings) - _SHOWN} more")
