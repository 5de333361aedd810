"""Power, clock and scanner of a Windows PC, from its registry. With the names of `linux_pc`.

Sources: "Power Policy Settings" and the GUIDs of winnt.h, "Windows Time service tools and settings", "Configure and
validate exclusions" of Microsoft Defender on learn.microsoft.com. Not tried on a real Windows.
"""

from __future__ import annotations

from collections.abc import Callable

from acqstream.storage.platform.pc_facts import PowerFacts, ScannerFacts

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
