"""Power, clock and scanner of a Linux PC. Sources: sysfs documentation of the kernel, adjtimex(2)."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from acqstream.storage.platform.pc_facts import PowerFacts, ScannerFacts

_TIME_ERROR = 5  # adjtimex(2): the clock is not synchronized
_TIMEX_BYTES = 512  # more than struct timex has
_SLOW_GOVERNORS = {"powersave"}
# With these drivers "powersave" means: as fast as the load demands.
_DRIVERS_WITHOUT_SLOW_GOVERNOR = {"intel_pstate", "amd-pstate-epp"}
_GNOME = "org.gnome.settings-daemon.plugins.power"
_TOOL_S = 5.0


def power_facts(root: Path = Path("/")) -> PowerFacts:
    """Return the governors of the processors, the supply, and the time after which the desktop suspends."""
    folders = sorted(root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq"))
    governors = {_text(folder / "scaling_governor") for folder in folders} - {""}
    drivers = {_text(folder / "scaling_driver") for folder in folders} - {""}
    slow = governors & _SLOW_GOVERNORS if not drivers & _DRIVERS_WITHOUT_SLOW_GOVERNOR else set()
    mains = [
        _text(path.parent / "online") for path in root.glob("sys/class/power_supply/*/type") if _text(path) == "Mains"
    ]
    return PowerFacts(
        plan=", ".join(sorted(governors)),
        slows_down=bool(slow),
        on_battery="1" not in mains if mains else None,
        sleep_after_s=0 if _is_sleep_masked(root) else _gnome_sleep_s(),
    )


def is_clock_synchronised() -> bool | None:
    """Return True if the kernel keeps the clock with the help of a time server; None if it does not say."""
    try:
        state: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))  # all zero: only asks
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _TIME_ERROR


def scanner_facts() -> ScannerFacts:
    """Return nothing: Linux has no scanner of its own."""
    return ScannerFacts()


def _is_sleep_masked(root: Path) -> bool:
    unit = root / "etc/systemd/system/sleep.target"
    return unit.is_symlink() and unit.readlink() == Path("/dev/null")


def _gnome_sleep_s() -> int | None:
    """The seconds after which GNOME suspends a PC on mains power; None without GNOME."""
    kind, seconds = _setting("sleep-inactive-ac-type"), _setting("sleep-inactive-ac-timeout")
    if kind == "nothing":
        return 0
    return int(seconds) if kind and seconds.isdecimal() else None


def _setting(key: str) -> str:
    try:
        command = ["gsettings", "get", _GNOME, key]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().strip("'") if done.returncode == 0 else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
