"""How tries are counted and told: only what was delivered, and whatever went wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import faults
from tests.faults.fault_result import FaultResult, Try, repeat

ROOT = Path(__file__).resolve().parents[2]


def test_faults_that_were_not_delivered_are_tried_again_and_not_counted(tmp_path: Path) -> None:
    seeds = []

    def every_second(one: Try, faults: int, place: Path) -> None:
        seeds.append(one.seed)
        one.delivered = one.seed % 2
        one.acknowledged = 10 * one.delivered

    result = repeat(FaultResult("x", 100), 3, every_second, tmp_path)
    assert (result.tried, result.survived, result.delivered, result.acknowledged) == (3, 3, 3, 30)
    assert seeds == list(range(100, 106))
    assert not list(tmp_path.iterdir())


def test_several_faults_in_a_run_stand_and_fall_together(tmp_path: Path) -> None:
    asked = []

    def lossy(one: Try, faults: int, place: Path) -> None:
        asked.append(faults)
        one.delivered = faults
        if one.seed == 1:
            one.lose("after kill 2", [4, 5])
            one.mistake("at the end", [7])

    result = repeat(FaultResult("x", 0), 12, lossy, tmp_path, faults_a_run=5, at_once=2)
    assert sorted(asked) == [2, 5, 5]
    assert (result.tried, result.survived, result.lost, result.wrong) == (12, 7, 2, 1)
    assert not result.all_survived
    assert "after kill 2: 2 acknowledged frames are lost: 4, 5" in result.failures[0]
    assert "--only 'x' --seed 1 --tries 5" in result.failures[0]
    assert [place.name for place in tmp_path.iterdir()] == ["1"]  # to look at


def test_whatever_is_raised_is_a_failure_and_hopeless_runs_end(tmp_path: Path) -> None:
    def broken(one: Try, faults: int, place: Path) -> None:
        raise RuntimeError("the daemon does not start")

    result = repeat(FaultResult("x", 0), 50, broken, tmp_path)
    assert result.tried == 0
    assert not result.all_survived
    assert len(result.failures) < 10
    assert "the daemon does not start" in result.failures[0]


def survives(seed: int, tries: int, folder: Path) -> FaultResult:
    return FaultResult("survives", seed, tried=tries, survived=tries, delivered=tries, acknowledged=1234)


def loses(seed: int, tries: int, folder: Path) -> FaultResult:
    return FaultResult("loses", seed, tried=tries, survived=1, delivered=tries, lost=3, failures=["3 are lost"])


def cannot(seed: int, tries: int, folder: Path) -> FaultResult:
    return FaultResult.skip("cannot", seed, tries, "mounting takes root")


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """tools/faults.py with three faults of its own."""
    monkeypatch.setattr(faults, "FAULTS", {"survives": (50, survives), "loses": (20, loses), "cannot": (40, cannot)})
    return lambda *arguments: faults.main(["--folder", str(tmp_path), *arguments])


def test_what_cannot_be_tried_is_told_and_is_no_pass(
    tool: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        tool("--only", "survives", "cannot", "--seed", "5", "--scale", "0.1", "--json", str(tmp_path / "x.json")) == 3
    )
    said = capsys.readouterr().out
    assert "| survives | 5 / 5 | 1,234 | 0 | 0 | 5 |" in said
    assert "| cannot | 0 / 0 | 0 | 0 | 0 | 0 |" in said
    assert "skipped: cannot, 4 tries: mounting takes root" in said
    report = json.loads((tmp_path / "x.json").read_bytes())
    assert [(row["fault"], row["seed"], row["tried"], row["skipped"]) for row in report["faults"]] == [
        ("survives", 5, 5, 0),
        ("cannot", 5, 0, 4),
    ]
    assert report["versions"]["acqstream"]
    assert report["kernel"]
    assert report["file_system"]
    assert report["date"]


def test_only_if_all_survived_the_exit_code_is_0(
    tool: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool("--only", "survives") == 0
    assert not list(tmp_path.iterdir())
    assert tool("--seed", "5", "--tries", "2") == 1
    said = capsys.readouterr().out
    assert "| loses | 1 / 2 | 0 | 3 | 0 | 2 |" in said
    assert "loses NOT SURVIVED: 3 are lost" in said


def test_every_fault_of_the_tool_is_in_its_page() -> None:
    page = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    assert not [name for name in faults.FAULTS if f"`{name}`" not in page]
