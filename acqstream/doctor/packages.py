"""Check: are the libraries there, and new enough?"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

from acqstream import __version__
from acqstream.doctor.examination import Examination
from acqstream.doctor.verdict import CheckVerdict, ok, problem, unknown

NAME = "packages"
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?>=([0-9.]+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageFacts:
    """versions: of each required package (empty: missing); oldest: the oldest that works, for each."""

    python: str
    acqstream: str
    versions: dict[str, str]
    oldest: dict[str, str]


def gather(examination: Examination) -> PackageFacts:
    """Read the versions that are installed beside this one."""
    del examination
    try:
        lines = requires("acqstream") or []
    except PackageNotFoundError:  # run from a checkout
        lines = []
    matches = [_REQUIREMENT.match(line.replace(" ", "")) for line in lines]
    oldest = {match[1]: match[2] for match in matches if match is not None}
    versions = {name: _version(name) for name in oldest}
    return PackageFacts(python=platform.python_version(), acqstream=__version__, versions=versions, oldest=oldest)


def judge(facts: PackageFacts) -> CheckVerdict:
    """Compare each version with the oldest that works."""
    if not facts.oldest:
        text = f"acqstream {facts.acqstream} is not installed as a package: its requirements are not known."
        return unknown(text, "Install it with pip.")
    missing = [name for name, found in facts.versions.items() if not found]
    old = [
        f"{name} {found} (needs {facts.oldest[name]})"
        for name, found in facts.versions.items()
        if found and _numbers(found) < _numbers(facts.oldest[name])
    ]
    if missing or old:
        wrong = [*(f"{name} is missing" for name in missing), *(f"{text}" for text in old)]
        names = " ".join([*missing, *(text.split()[0] for text in old)])
        return problem(f"{'; '.join(wrong)}.", f"pip install --upgrade {names}")
    return ok(f"acqstream {facts.acqstream}, Python {facts.python}; all {len(facts.versions)} packages are new enough.")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _numbers(text: str) -> list[int]:
    """The leading numbers of a version: 2.0rc1 counts as 2.0."""
    return [int(part) for part in re.findall(r"^\d+(?:\.\d+)*", text)[0].split(".")] if text[:1].isdecimal() else []
