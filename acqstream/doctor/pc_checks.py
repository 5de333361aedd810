"""Checks of the PC: clock, power, virus scanner, memory, shared memory, packages, kernels."""

from __future__ import annotations

import ntpath
import platform
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

from acqstream import __version__
from acqstream.doctor.verdict import Check, CheckVerdict, Examination, ok, problem, unknown, warning
from acqstream.grid import kernels
from acqstream.storage.platform import memory_listener, shared_memory
from acqstream.storage.platform.capabilities import address_limit_bytes
from acqstream.storage.platform.pc import is_clock_synchronised, power_facts, scanner_facts
from acqstream.storage.platform.pc_facts import PowerFacts, ScannerFacts


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """is_synchronised: None where the system does not say."""

    is_synchronised: bool | None


def _judge_clock(facts: ClockFacts) -> CheckVerdict:
    """A wrong clock loses no frames, but their times."""
    if facts.is_synchronised is None:
        return unknown("The system does not report whether its clock is kept by a time server.")
    if facts.is_synchronised:
        return ok("The clock is kept by a time server.")
    return warning(
        "The clock is not kept by a time server: capture times drift and jump.",
        "Switch network time on (Linux: `timedatectl set-ntp true`; Windows: time settings).",
    )


CLOCK = Check("clock", lambda _: ClockFacts(is_clock_synchronised()), _judge_clock)


_PERFORMANCE_PLAN = (
    "Choose the performance plan (Linux: `cpupower frequency-set -g performance`; Windows: power options)."
)
_NO_SUSPEND = "Switch automatic suspend off, or run `systemd-inhibit` (docs/system-service.md)."


def _judge_power_saving(facts: PowerFacts) -> CheckVerdict:
    """The worst first: a PC that sleeps records nothing."""
    if facts.sleep_after_s and not facts.stays_awake_for_runs:
        return problem(f"The PC sleeps after {facts.sleep_after_s // 60} minutes without a user.", _NO_SUSPEND)
    if facts.on_battery:
        return warning("The PC runs on its battery.", "Connect it to mains power.")
    if facts.slows_down:
        return warning(f"The processors save power ({facts.plan}).", _PERFORMANCE_PLAN)
    if not facts.plan and facts.sleep_after_s is None:
        return unknown("The system does not report how it saves power.", "Look at its power settings.")
    parts = [f"plan {facts.plan}"] if facts.plan else []
    if facts.sleep_after_s and facts.stays_awake_for_runs:
        parts.append("the PC sleeps, but not during a run")
    elif facts.sleep_after_s == 0:
        parts.append("the PC does not sleep")
    return ok(f"Power: {', '.join(parts)}.")


POWER_SAVING = Check("power saving", lambda _: power_facts(), _judge_power_saving)


@dataclass(frozen=True, slots=True)
class DirectoryScanFacts:
    """The scanner of the system, and the data directory."""

    scanner: ScannerFacts
    data: str


def _judge_virus_scanner(facts: DirectoryScanFacts) -> CheckVerdict:
    """Is the data directory, or a folder above it, left alone?"""
    scanner = facts.scanner
    if not scanner.name:
        return ok("This system has no scanner of its own; look after one that was installed.")
    if not scanner.is_scanning:
        return ok(f"{scanner.name} does not scan files as they are written.")
    remedy = f"As administrator, in PowerShell: Add-MpPreference -ExclusionPath '{facts.data}'"
    if scanner.excluded is None:
        text = f"{scanner.name} scans files as they are written; its exclusions can only be read by an administrator."
        return unknown(text, f"{remedy}, unless that was done.")
    if any(_is_in_folder(facts.data, folder) for folder in scanner.excluded):
        return ok(f"{scanner.name} leaves {facts.data} alone.")
    return warning(
        f"{scanner.name} scans each file in {facts.data} as it is written, which slows the recording.", remedy
    )


def _is_in_folder(path: str, folder: str) -> bool:
    own, above = (ntpath.normcase(one).rstrip("\\") for one in (path, folder))
    return own == above or own.startswith(above + "\\")


VIRUS_SCANNER = Check(
    "virus scanner", lambda asked: DirectoryScanFacts(scanner_facts(), str(asked.data.absolute())), _judge_virus_scanner
)


_MIB = 2**20
_MIN_DESCRIPTORS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFacts:
    """In bytes. needed: for frames, one pyramid, one mirror and programs.

    group_limit: of a service or container; address_limit: of a process (ulimit -v); None: no limit. descriptors: files
    that a process may open at most.
    """

    needed_bytes: int
    available_bytes: int
    group_limit_bytes: int | None = None
    address_limit_bytes: int | None = None
    descriptors: int = 65536


def _gather_memory_limits(examination: Examination) -> MemoryFacts:
    """Ask the system, as the daemon does when it starts."""
    import psutil

    from acqstream.daemon.resources import raise_descriptor_limit
    from acqstream.storage.memory_limit import memory_limit_bytes

    config = examination.config
    return MemoryFacts(
        needed_bytes=config.max_memory_mb * _MIB,
        available_bytes=psutil.virtual_memory().available,
        group_limit_bytes=memory_limit_bytes(),
        address_limit_bytes=address_limit_bytes(),
        descriptors=raise_descriptor_limit(),
    )


def _judge_memory_limits(facts: MemoryFacts) -> CheckVerdict:
    """Compare what the daemon may need with what it gets."""
    need = f"{_gb_text(facts.needed_bytes)} with a mirror and levels"
    smaller = "Set a smaller memory_mb in the configuration of the daemon"
    limit = facts.address_limit_bytes
    if limit is not None and limit < 2 * facts.needed_bytes:
        return problem(
            f"A process may use {_gb_text(limit)} of addresses (ulimit -v); a daemon needs twice {need}.",
            "Run `ulimit -v unlimited`.",
        )
    limit = facts.group_limit_bytes
    if limit is not None and limit < facts.needed_bytes:
        return problem(
            f"This service or container may use {_gb_text(limit)}; a daemon needs {need}.",
            f"Raise its limit (MemoryMax), or {smaller.lower()}.",
        )
    if facts.available_bytes < facts.needed_bytes:
        return warning(
            f"{_gb_text(facts.available_bytes)} of memory are available; a daemon may need {need}.",
            f"Close other programs, or {smaller.lower()}.",
        )
    if facts.descriptors < _MIN_DESCRIPTORS:
        return warning(f"A process may open {facts.descriptors} files.", "Raise the limit (`ulimit -n`, LimitNOFILE).")
    return ok(f"{_gb_text(facts.available_bytes)} of memory are available; a daemon may need {need}.")


def _gb_text(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"


MEMORY_LIMITS = Check("memory", _gather_memory_limits, _judge_memory_limits)


@dataclass(frozen=True, slots=True)
class MemorySharingFacts:
    """reason: why memory cannot be shared, empty if it can; is_switched_off: in the configuration."""

    reason: str = ""
    is_switched_off: bool = False


def _gather_memory_sharing(examination: Examination) -> MemorySharingFacts:
    """Ask the system for its means."""
    reason = shared_memory.unavailable_reason()
    if not reason and not memory_listener.is_possible():
        reason = "this system cannot hand memory to another process"
    return MemorySharingFacts(reason, not examination.config.shared_memory)


def _judge_memory_sharing(facts: MemorySharingFacts) -> CheckVerdict:
    """Sockets serve as well, at a cost."""
    if facts.reason:
        text = f"Memory cannot be shared with the daemon: {facts.reason}."
        return warning(text, "Nothing can be done; frames go over sockets, which takes more processor time.")
    if facts.is_switched_off:
        return warning("The configuration switches shared memory off.", "Remove `shared_memory = false`.")
    return ok("Programs on this PC hand frames to the daemon in shared memory.")


MEMORY_SHARING = Check("shared memory", _gather_memory_sharing, _judge_memory_sharing)


_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?>=([0-9.]+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageFacts:
    """versions: of each required package (empty: missing); oldest: the oldest that works, for each."""

    python: str
    acqstream: str
    versions: dict[str, str]
    oldest: dict[str, str]


def _gather_packages(examination: Examination) -> PackageFacts:
    """Read the versions that are installed beside this one."""
    del examination
    try:
        lines = requires("acqstream") or []
    except PackageNotFoundError:  # run from a checkout
        lines = []
    matches = [_REQUIREMENT.match(line.replace(" ", "")) for line in lines]
    oldest = {match[1]: match[2] for match in matches if match is not None}
    versions = {name: _installed_version(name) for name in oldest}
    return PackageFacts(python=platform.python_version(), acqstream=__version__, versions=versions, oldest=oldest)


def _judge_packages(facts: PackageFacts) -> CheckVerdict:
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


def _installed_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _numbers(text: str) -> list[int]:
    """The leading numbers of a version: 2.0rc1 counts as 2.0."""
    return [int(part) for part in re.findall(r"^\d+(?:\.\d+)*", text)[0].split(".")] if text[:1].isdecimal() else []


PACKAGES = Check("packages", _gather_packages, _judge_packages)


_KERNEL_COST = "levels and mirrors take about a third more processor time, for the same files"
_KERNEL_BUILD = (
    "Install a wheel for this platform, or a C compiler and the headers of Python, and install acqstream again."
)
_KERNEL_RESTART = "Then restart the daemon."


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """name: "compiled" or "numpy", in this process; reason: of numpy. daemon: those of the running daemon's views, ""
    before the first view, or if no daemon answers."""

    name: str
    reason: str = ""
    daemon: str = ""


def _gather_compiled_kernels(examination: Examination) -> KernelFacts:
    """Ask this process and the running daemon."""
    status = examination.status
    daemon = "" if status is None else status.views.kernels
    return KernelFacts(name=kernels.kernels_name(), reason=kernels.reason, daemon=daemon)


def _judge_compiled_kernels(facts: KernelFacts) -> CheckVerdict:
    """Numpy gives the same files: so it is never a problem."""
    is_chosen = facts.reason.startswith(kernels.VARIABLE)
    unset = f"Remove {kernels.VARIABLE} from the environment."
    if facts.name == "numpy":
        what = f"numpy replaces the compiled kernels ({facts.reason}): {_KERNEL_COST}."
        return warning(what, unset if is_chosen else f"{_KERNEL_BUILD} {_KERNEL_RESTART}")
    if facts.daemon == "numpy":
        what = f"The daemon's views use numpy, this program has the compiled kernels: {_KERNEL_COST}."
        return warning(what, f"Remove {kernels.VARIABLE} from the environment of the daemon. {_KERNEL_RESTART}")
    return ok("Levels and mirrors have the compiled kernels.")


COMPILED_KERNELS = Check("kernels", _gather_compiled_kernels, _judge_compiled_kernels)
