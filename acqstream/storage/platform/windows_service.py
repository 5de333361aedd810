"""Starts the daemon when its user logs on: a task of the Task Scheduler.

A task runs in the session of the microscope's user, as the camera program does: with the same rights on the data, and
able to share memory with it. Sources: "Task Scheduler Schema" and schtasks on learn.microsoft.com; MS-TSCH. Not tried
on a real Windows: Wine has no Task Scheduler.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path, PureWindowsPath
from xml.etree import ElementTree

from acqstream.storage.platform.service_tool import answers, run_tool

NAME = "acqstream"
_NAMESPACE = "http://schemas.microsoft.com/windows/2004/02/mit/task"
_SETTINGS = {
    "MultipleInstancesPolicy": "IgnoreNew",
    # Tasks start on mains power only, and end on battery, unless they say otherwise.
    "DisallowStartIfOnBatteries": "false",
    "StopIfGoingOnBatteries": "false",
    "AllowStartOnDemand": "true",
    "ExecutionTimeLimit": "PT0S",  # no limit; without this, the daemon would be killed after 3 days
    "Priority": "4",  # normal; without this, processor, disk and memory priority are below normal
}


def install(command: Sequence[str], log: Path) -> str:
    """Create the task and start it; return what was done. An existing task is replaced. Raises OSError."""
    user = f"{os.environ.get('USERDOMAIN', '.')}\\{os.environ.get('USERNAME', '')}"
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.xml"
        path.write_text(definition([*command, "--log", str(log)], user), encoding="utf-16")
        run_tool(["schtasks", "/Create", "/TN", NAME, "/XML", str(path), "/F"])
    run_tool(["schtasks", "/Run", "/TN", NAME])
    return f"task {NAME}: starts when {user} logs on, and was started now; log in {log}"


def remove() -> str:
    """Delete the task. A running daemon continues until `acqstream shutdown`. Raises OSError."""
    run_tool(["schtasks", "/Delete", "/TN", NAME, "/F"])
    return f"task {NAME} was removed; end a running daemon with: acqstream shutdown"


def is_installed() -> bool:
    return answers(["schtasks", "/Query", "/TN", NAME])


def definition(command: Sequence[str], user: str) -> str:
    """The task in XML. command is the daemon's, with the path of its program first; user is DOMAIN\\NAME."""
    task = ElementTree.Element("Task", {"version": "1.2", "xmlns": _NAMESPACE})
    _add(task, "RegistrationInfo", {"Description": "acqstream, writer of microscope acquisitions", "URI": f"\\{NAME}"})
    trigger = ElementTree.SubElement(task, "Triggers")
    _add(trigger, "LogonTrigger", {"Enabled": "true", "UserId": user})
    principals = ElementTree.SubElement(task, "Principals")
    rights = {"UserId": user, "LogonType": "InteractiveToken", "RunLevel": "LeastPrivilege"}
    _add(principals, "Principal", rights).set("id", "Author")
    settings = _add(task, "Settings", _SETTINGS)
    _add(settings, "IdleSettings", {"StopOnIdleEnd": "false", "RestartOnIdle": "false"})
    _add(settings, "RestartOnFailure", {"Interval": "PT1M", "Count": "3"})
    actions = ElementTree.SubElement(task, "Actions", {"Context": "Author"})
    program = _without_window(command[0])
    _add(actions, "Exec", {"Command": program, "Arguments": subprocess.list2cmdline(command[1:])})
    ElementTree.indent(task)
    return f'<?xml version="1.0" encoding="UTF-16"?>\n{ElementTree.tostring(task, encoding="unicode")}\n'


def _add(parent: ElementTree.Element, name: str, values: dict[str, str]) -> ElementTree.Element:
    element = ElementTree.SubElement(parent, name)
    for key, value in values.items():
        ElementTree.SubElement(element, key).text = value
    return element


def _without_window(program: str) -> str:
    """pythonw.exe in place of python.exe: a console window would be closed by somebody who tidies up."""
    path = PureWindowsPath(program)
    return str(path.with_name("pythonw.exe")) if path.name.lower() == "python.exe" else program
