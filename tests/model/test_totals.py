"""Totals add up, and each warning is counted under a code of the closed list."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from acqstream.model.status import LATENCY_BOUNDS_S, DaemonTotals, LatencyHistogram, WarningCode, counted_code

ROOT = Path(__file__).resolve().parents[2]


def test_totals_add_field_by_field() -> None:
    counts = tuple(range(len(LATENCY_BOUNDS_S) + 1))
    one = DaemonTotals(
        frames_received=9,
        stall_s=1.5,
        warnings={"disk_low": 2},
        ended={"completed": 1},
        publish_latency=LatencyHistogram(counts=counts, sum_s=3.0),
    )
    other = DaemonTotals(frames_received=1, frames_missing=4, stall_s=0.5, warnings={"io_error": 1, "disk_low": 1})
    both = one.plus(other)
    assert both == other.plus(one)
    assert (both.frames_received, both.frames_missing, both.stall_s) == (10, 4, 2.0)
    assert both.warnings == {"disk_low": 3, "io_error": 1}
    assert both.ended == {"completed": 1}
    assert both.publish_latency == one.publish_latency
    assert both.publish_latency.plus(one.publish_latency).counts == tuple(2 * one for one in counts)


def test_histograms_of_other_bounds_are_not_added() -> None:
    with pytest.raises(ValueError, match="zip"):
        LatencyHistogram().plus(LatencyHistogram(bounds_s=(1.0,), counts=(0, 0)))


def warned_codes() -> set[str]:
    """Codes that log and daemon warn with, as they stand in the source."""
    codes = set()
    for folder in ("log", "daemon"):
        for path in sorted((ROOT / "acqstream" / folder).glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "warn":
                    first = node.args[0]
                    codes |= {str(first.value)} if isinstance(first, ast.Constant) else set()
    return codes


def test_every_code_of_the_source_is_counted_under_its_own_name() -> None:
    codes = warned_codes()
    assert {"disk_full", "shape_changed", "no_levels"} <= codes
    assert {code: counted_code(code) for code in codes} == {code: code for code in codes}
    assert counted_code("news") == "other"


def test_the_page_of_the_protocol_has_every_code() -> None:
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    section = page.split("\n### `warn`\n")[1].split("\n### ")[0]
    named = set(re.findall(r"`([a-z_]+)`", section.partition("Codes so far:")[2]))
    assert named == set(WarningCode) - {WarningCode.OTHER}
