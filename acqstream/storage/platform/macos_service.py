"""Starts the daemon when its user logs in: an agent of launchd. With the names of `windows_service`.

Sources: launchd.plist(5), launchctl(1). No person has run it.
"""

from __future__ import annotations

import os
import plistlib
from collections.abc import Sequence
from pathlib import Path

from acqstream.storage.platform.capabilities import user_id
from acqstream.storage.platform.service_tool import answers, run_tool

NAME = "org.acqstream.daemon"
_EXIT_S = 330  # more than stop_timeout_s of the daemon; launchd kills it after 20 s unless told


def install(command: Sequence[str], log: Path) -> str:
    """Write the agent and start it; return what was done. An existing agent is replaced. Raises OSError."""
    path = _path()
    for folder in (path.parent, log.parent):
        folder.mkdir(parents=True, exist_ok=True)
    if is_installed():
        run_tool(["launchctl", "bootout", f"{_domain()}/{NAME}"])
    path.write_bytes(definition([*command, "--log", str(log)]))
    run_tool(["launchctl", "bootstrap", _domain(), str(path)])
    return f"{path}: starts when you log in, and was started now; log in {log}"


def remove() -> str:
    """Stop the daemon and remove the agent. Raises OSError."""
    path = _path()
    run_tool(["launchctl", "bootout", f"{_domain()}/{NAME}"])
    path.unlink(missing_ok=True)
    return f"{path} was removed, and its daemon has ended"


def is_installed() -> bool:
    return answers(["launchctl", "print", f"{_domain()}/{NAME}"])


def definition(command: Sequence[str]) -> bytes:
    """The agent as a property list. command is the daemon's, with the path of its program first."""
    agent = {
        "Label": NAME,
        "ProgramArguments": list(command),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},  # not after `acqstream shutdown`
        "ProcessType": "Interactive",  # others get less processor time and slower disk access
        "ExitTimeOut": _EXIT_S,
        "SoftResourceLimits": {"NumberOfFiles": 65536},
    }
    return plistlib.dumps(agent, sort_keys=False)


def _domain() -> str:
    return f"gui/{user_id()}"


def _path() -> Path:
    return Path(os.path.expanduser("~")) / "Library" / "LaunchAgents" / f"{NAME}.plist"
