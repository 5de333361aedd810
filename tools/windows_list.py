"""Which test files run on Windows: tests/windows_list.txt, one file or pattern of a folder in a line.

A line is `short PATTERN`, `long PATTERN` or `out PATTERN REASON`; patterns begin below tests/. A line that names one
file prevails over a pattern that matches it. The short list runs in every CI run, both with `--all`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from steps import ROOT

TESTS = ROOT / "tests"
LIST = TESTS / "windows_list.txt"
SHORT, LONG, OUT = "short", "long", "out"

SUMMARY = re.compile(r"\d+ [a-z]+.* in [\d.]+s\b|hung, the run ends here")
COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed|deselected)\b")


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the list."""

    part: str
    pattern: str
    reason: str

    def applies_to(self, file: str) -> bool:
        return fnmatchcase(file, self.pattern)


def read_rules(text: str) -> list[Rule]:
    """Raises ValueError for a line that is not one of the three kinds, or lacks the reason why tests are left out."""
    rules = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        part, pattern, reason = [*line.split(maxsplit=2), "", ""][:3]
        if part not in (SHORT, LONG, OUT) or not pattern or bool(reason) != (part == OUT):
            raise ValueError(f"expected 'short PATTERN', 'long PATTERN' or 'out PATTERN REASON', found {line!r}")
        rules.append(Rule(part, pattern, reason))
    return rules


def sort_files(files: Iterable[str], rules: Sequence[Rule]) -> dict[str, Rule]:
    """The rule of each file.

    Raises ValueError if a file has none or several equally precise ones, or if a rule applies to no file.
    """
    chosen, problems = {}, []
    for file in sorted(files):
        named = [rule for rule in rules if rule.pattern == file]
        found = named or [rule for rule in rules if rule.applies_to(file)]
        if len(found) == 1:
            chosen[file] = found[0]
        else:
            problems.append(f"{file} has {len(found)} lines, expected one")
    idle = set(rules) - set(chosen.values())
    problems += [f"{rule.part} {rule.pattern} applies to no file" for rule in rules if rule in idle]
    if problems:
        raise ValueError("; ".join(problems))
    return chosen


def all_test_files() -> list[str]:
    """Every test file, relative to tests/."""
    return [path.relative_to(TESTS).as_posix() for path in sorted(TESTS.rglob("test_*.py"))]


def rules_of_files() -> dict[str, Rule]:
    return sort_files(all_test_files(), read_rules(LIST.read_text(encoding="utf-8")))


def groups(files: Iterable[str]) -> dict[str, list[str]]:
    """Files by the folder below tests/: each group runs in a process of its own, so that a crash ends no other."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for file in sorted(files):
        folder, slash, _ = file.partition("/")
        found[folder if slash else ""].append(f"tests/{file}")
    return dict(found)


def is_summary(line: str) -> bool:
    """True for the last line that pytest itself prints."""
    return SUMMARY.search(line) is not None


def counts_of(summary: str) -> dict[str, int]:
    """pytest's last line as numbers: {"passed": 12, "failed": 1}."""
    return {kind.removesuffix("s") if kind == "errors" else kind: int(count) for count, kind in COUNT.findall(summary)}


def describe(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "no test"
