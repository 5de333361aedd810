"""Power, clock and scanner of a Windows PC, and a task that starts the daemon at log-on. With the names of `linux_pc`.

A task runs in the session of the microscope's user, as the camera program does: with the same rights on the data, and
able to share memory with it. Sources: "Power Policy Settings" and the GUIDs of winnt.h, "Windows Time service tools and
settings", "Configure and validate exclusions" of Microsoft Defender, "Task Scheduler Schema" and schtasks on
learn.microsoft.com; MS-TSCH. Not tried on a real Windows: Wine has no Task Scheduler.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path, PureWindowsPath
from xml.etree import ElementTree

from acqstream.storage.platform.pc_facts import PowerFacts, ScannerFacts, answers, run_tool

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


_POWER = r"SYSTEM\CurrentControlSet\Control\Power"
_SLEEP = r"238c9fa8-0aad-41ed-83f4-97be242c8f20\29f6c1db-86da-48c5-9fdb-f2b67b1f44da"  # GUID_STANDBY_TIMEOUT
_PLANS = {
    "381b4222-f694-41f0-9685-ff5bb260df2e": "balanced",
    "8c5e7fda-e8bf-4a96-9a85-a6e23a8c635c": "high performance",
    "a1841308-3541-4fab-bc81-f71556f20b4a": "power saver",
    "e9a42b02-d5df-448d-aa00-03f14749eb61": "ultimate performance",
}
_TIME = r"SYSTEM\CurrentControlSet\Services\W32Time"
_SERVICE_DISABLED = 4
_DEFENDER = r"SOFTWARE\Microsoft\Windows Defender"

Read = Callable[[str, str], object]
"""The value of a key below HKEY_LOCAL_MACHINE; None if it is missing. Raises PermissionError."""


def power_facts(read: Read | None = None) -> PowerFacts:
    """Return the active power plan, and the time after which the PC sleeps on mains power."""
    ask = read or _read
    active = ask(rf"{_POWER}\User\PowerSchemes", "ActivePowerScheme")
    plan = active.lower() if isinstance(active, str) else ""
    chosen = ask(rf"{_POWER}\User\PowerSchemes\{plan}\{_SLEEP}", "ACSettingIndex") if plan else None
    if chosen is None and plan:
        chosen = ask(rf"{_POWER}\PowerSettings\{_SLEEP}\DefaultPowerSchemeValues\{plan}", "AcSettingIndex")
    return PowerFacts(
        plan=_PLANS.get(plan, plan),
        slows_down=_PLANS.get(plan) == "power saver",
        sleep_after_s=chosen if isinstance(chosen, int) else None,
        stays_awake_for_runs=True,
    )


def is_clock_synchronised(read: Read | None = None) -> bool | None:
    """Return True if the time service is set up to ask a server; None if the registry does not say."""
    ask = read or _read
    kind, start = ask(rf"{_TIME}\Parameters", "Type"), ask(_TIME, "Start")
    if not isinstance(kind, str):
        return None
    return kind.lower() != "nosync" and start != _SERVICE_DISABLED


def scanner_facts(read: Read | None = None, names: Callable[[str], tuple[str, ...]] | None = None) -> ScannerFacts:
    """Return whether Microsoft Defender scans files as they are written, and which folders it leaves alone.

    Newer versions show the folders to administrators only.
    """
    ask, list_names = read or _read, names or _names
    if ask(_DEFENDER, "InstallLocation") is None:
        return ScannerFacts()
    policy = ask(rf"{_DEFENDER}\Real-Time Protection", "DisableRealtimeMonitoring")
    try:
        excluded = list_names(rf"{_DEFENDER}\Exclusions\Paths")
    except OSError:
        return ScannerFacts(name="Microsoft Defender", is_scanning=policy != 1)
    return ScannerFacts(name="Microsoft Defender", is_scanning=policy != 1, excluded=excluded)


def _read(key: str, value: str) -> object:
    import winreg

    try:
        with vars(winreg)["OpenKey"](vars(winreg)["HKEY_LOCAL_MACHINE"], key) as opened:
            found: object = vars(winreg)["QueryValueEx"](opened, value)[0]
            return found
    except OSError:
        return None


def _names(key: str) -> tuple[str, ...]:
    """The names of the values of a key. Raises OSError."""
    import winreg

    with vars(winreg)["OpenKey"](vars(winreg)["HKEY_LOCAL_MACHINE"], key) as opened:
        count = vars(winreg)["QueryInfoKey"](opened)[1]
        return tuple(vars(winreg)["EnumValue"](opened, index)[0] for index in range(count))
