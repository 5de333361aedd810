"""Power, clock and scanner of a Linux PC, and a user unit of systemd that starts the daemon when its user logs in.

The system service, for several users, is in the folder systemd/ of the project. Sources: sysfs documentation of the
kernel, adjtimex(2), systemd.service(5), systemd.unit(5), systemd.exec(5).
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from acqstream.storage.platform.pc_facts import PowerFacts, ScannerFacts, answers, run_tool

NAME = "acqstream.service"
_SYSTEMCTL = ("systemctl", "--user")
_UNIT = """\
# acqstream as a service of one user, who owns the data. How to install it: ../README.md

[Unit]
Description=acqstream, writer of microscope acquisitions
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=notify
NotifyAccess=main
# %h is the home directory, %E its .config; pipx puts the command into .local/bin.
ExecStart={command}
UMask=0027
RuntimeDirectory=acqstream
RuntimeDirectoryMode=0700

Restart=on-failure
RestartSec=1s
RestartPreventExitStatus=78
TimeoutStartSec=120s
TimeoutStopSec=10min
KillMode=mixed
WatchdogSec=120s
LimitCORE=0

NoNewPrivileges=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
# AF_NETLINK: libzmq lists the network interfaces with getifaddrs, and aborts where that is refused.
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""


def install(command: Sequence[str], log: Path) -> str:
    """Write the unit, enable and start it; return what was done. An existing unit is replaced. Raises OSError.

    log is not used: the journal has the log.
    """
    del log
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(definition([_quoted(word) for word in command]), encoding="utf-8")
    run_tool([*_SYSTEMCTL, "daemon-reload"])
    run_tool([*_SYSTEMCTL, "enable", "--now", NAME])
    return (
        f"{path}: starts when you log in, and was started now; without a login: loginctl enable-linger; "
        f"log: journalctl --user -u {NAME}"
    )


def remove() -> str:
    """Stop the daemon and remove the unit. Raises OSError."""
    path = _path()
    run_tool([*_SYSTEMCTL, "disable", "--now", NAME])
    path.unlink(missing_ok=True)
    run_tool([*_SYSTEMCTL, "daemon-reload"])
    return f"{path} was removed, and its daemon has ended"


def is_installed() -> bool:
    return _path().exists() and answers([*_SYSTEMCTL, "is-enabled", NAME])


def definition(words: Sequence[str]) -> str:
    """The unit. words are those of ExecStart, quoted as systemd needs it."""
    return _UNIT.format(command=" ".join(words))


def _quoted(word: str) -> str:
    """A word of a command as systemd reads it: % and $ are not expanded, and blanks do not split it."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{text}"'


def _path() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "systemd" / "user" / NAME


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
