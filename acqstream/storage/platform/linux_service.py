"""Starts the daemon when its user logs in: a user unit of systemd. With the names of `windows_service`.

The system service, for several users, is in the folder systemd/ of the project. Sources: systemd.service(5),
systemd.unit(5), systemd.exec(5).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from acqstream.storage.platform.service_tool import answers, run_tool

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
