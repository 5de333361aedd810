"""What a system reports about power, clock and scanner."""

from __future__ import annotations

import ctypes
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from acqstream.storage.platform import linux_pc, pc, pc_facts, windows_pc
from acqstream.storage.platform.pc_facts import PowerFacts, ScannerFacts

BALANCED, SAVER = "381b4222-f694-41f0-9685-ff5bb260df2e", "a1841308-3541-4fab-bc81-f71556f20b4a"
POWER = r"SYSTEM\CurrentControlSet\Control\Power"
SLEEP = r"238c9fa8-0aad-41ed-83f4-97be242c8f20\29f6c1db-86da-48c5-9fdb-f2b67b1f44da"
TIME = r"SYSTEM\CurrentControlSet\Services\W32Time"
DEFENDER = r"SOFTWARE\Microsoft\Windows Defender"


def test_all_systems_have_the_same_questions() -> None:
    for name in ("is_clock_synchronised", "power_facts", "scanner_facts"):
        for module in (linux_pc, pc_facts, windows_pc):
            parameters = inspect.signature(getattr(module, name)).parameters.values()
            assert all(one.default is not inspect.Parameter.empty for one in parameters)
    assert isinstance(pc.power_facts(), PowerFacts)
    assert isinstance(pc.scanner_facts(), ScannerFacts)
    assert pc.is_clock_synchronised() in (True, False, None)
    assert pc_facts.is_clock_synchronised() is None
    assert (pc_facts.power_facts(), pc_facts.scanner_facts()) == (PowerFacts(), ScannerFacts())


def written(root: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


CPU = "sys__devices__system__cpu__cpu"


@pytest.fixture
def no_desktop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linux_pc, "_setting", lambda _key: "")


@pytest.mark.usefixtures("no_desktop")
@pytest.mark.parametrize(
    ("governors", "driver", "slow"),
    [
        (("performance", "performance"), "acpi-cpufreq", False),
        (("performance", "powersave"), "acpi-cpufreq", True),
        (("powersave", "powersave"), "intel_pstate", False),
        (("schedutil", "schedutil"), "acpi-cpufreq", False),
    ],
)
def test_governors(tmp_path: Path, governors: tuple[str, str], driver: str, slow: bool) -> None:
    for number, governor in enumerate(governors):
        folder = f"{CPU}{number}__cpufreq__"
        written(tmp_path, **{f"{folder}scaling_governor": governor, f"{folder}scaling_driver": driver})
    facts = linux_pc.power_facts(tmp_path)
    assert (facts.plan, facts.slows_down) == (", ".join(sorted(set(governors))), slow)
    assert (facts.on_battery, facts.sleep_after_s, facts.stays_awake_for_runs) == (None, None, False)


@pytest.mark.usefixtures("no_desktop")
@pytest.mark.parametrize(("online", "on_battery"), [("1", False), ("0", True)])
def test_the_supply(tmp_path: Path, online: str, on_battery: bool) -> None:
    supply = "sys__class__power_supply__"
    written(tmp_path, **{f"{supply}AC__type": "Mains", f"{supply}AC__online": online, f"{supply}BAT0__type": "Battery"})
    assert linux_pc.power_facts(tmp_path).on_battery is on_battery


@pytest.mark.usefixtures("no_desktop")
@pytest.mark.skipif(sys.platform != "linux", reason="links of Linux")
def test_a_masked_sleep_target(tmp_path: Path) -> None:
    unit = tmp_path / "etc" / "systemd" / "system" / "sleep.target"
    unit.parent.mkdir(parents=True)
    assert linux_pc.power_facts(tmp_path).sleep_after_s is None
    unit.symlink_to("/dev/null")
    assert linux_pc.power_facts(tmp_path).sleep_after_s == 0


@pytest.mark.parametrize(
    ("kind", "seconds", "expected"), [("'suspend'", "1200", 1200), ("'nothing'", "1200", 0), ("", "", None)]
)
def test_the_desktop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, seconds: str, expected: object
) -> None:
    def run(command: list[str], **_options: Any) -> subprocess.CompletedProcess[str]:
        text = kind if command[-1].endswith("type") else seconds
        return subprocess.CompletedProcess(command, 0 if text else 1, f"{text}\n", "")

    monkeypatch.setattr(subprocess, "run", run)
    assert linux_pc.power_facts(tmp_path).sleep_after_s == expected


def test_without_the_tool_of_the_desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert linux_pc._setting("sleep-inactive-ac-type") == ""


@pytest.mark.parametrize(("state", "expected"), [(0, True), (1, True), (5, False), (-1, None)])
def test_the_clock_of_the_kernel(monkeypatch: pytest.MonkeyPatch, state: int, expected: object) -> None:
    """adjtimex(2): TIME_OK is 0, TIME_INS 1, TIME_ERROR 5; -1 is an error of the call."""

    class Library:
        def __init__(self, _name: object) -> None: ...
        def adjtimex(self, buffer: Any) -> int:
            assert buffer.raw == bytes(len(buffer.raw))  # modes = 0: changes nothing
            return state

    monkeypatch.setattr(ctypes, "CDLL", Library)
    assert linux_pc.is_clock_synchronised() is expected


@pytest.mark.parametrize(
    ("values", "plan", "slow", "seconds"),
    [
        ({(rf"{POWER}\User\PowerSchemes\{BALANCED}\{SLEEP}", "ACSettingIndex"): 1800}, "balanced", False, 1800),
        (
            {(rf"{POWER}\PowerSettings\{SLEEP}\DefaultPowerSchemeValues\{BALANCED}", "AcSettingIndex"): 0},
            "balanced",
            False,
            0,
        ),
        ({(rf"{POWER}\User\PowerSchemes", "ActivePowerScheme"): SAVER.upper()}, "power saver", True, None),
        ({(rf"{POWER}\User\PowerSchemes", "ActivePowerScheme"): "of-the-maker"}, "of-the-maker", False, None),
        ({(rf"{POWER}\User\PowerSchemes", "ActivePowerScheme"): None}, "", False, None),
    ],
)
def test_the_power_plan_of_windows(values: dict[Any, Any], plan: str, slow: bool, seconds: object) -> None:
    registry = {(rf"{POWER}\User\PowerSchemes", "ActivePowerScheme"): BALANCED, **values}
    facts = windows_pc.power_facts(lambda key, value: registry.get((key, value)))
    assert (facts.plan, facts.slows_down, facts.sleep_after_s) == (plan, slow, seconds)
    assert facts.stays_awake_for_runs


@pytest.mark.parametrize(
    ("kind", "start", "expected"),
    [("NTP", 3, True), ("NT5DS", 2, True), ("NoSync", 3, False), ("NTP", 4, False), (None, 3, None)],
)
def test_the_time_service_of_windows(kind: object, start: int, expected: object) -> None:
    registry = {(rf"{TIME}\Parameters", "Type"): kind, (TIME, "Start"): start}
    assert windows_pc.is_clock_synchronised(lambda key, value: registry.get((key, value))) is expected


def test_the_scanner_of_windows() -> None:
    registry: dict[Any, Any] = {}

    def read(key: str, value: str) -> object:
        return registry.get((key, value))

    def names(key: str) -> tuple[str, ...]:
        assert key == rf"{DEFENDER}\Exclusions\Paths"
        return (r"D:\data",)

    def refuse(key: str) -> tuple[str, ...]:
        raise PermissionError(13, "Access is denied", key)

    assert windows_pc.scanner_facts(read, names) == ScannerFacts()
    registry[DEFENDER, "InstallLocation"] = r"C:\Program Files\Windows Defender"
    found = windows_pc.scanner_facts(read, names)
    assert found == ScannerFacts(name="Microsoft Defender", is_scanning=True, excluded=(r"D:\data",))
    assert windows_pc.scanner_facts(read, refuse).excluded is None
    registry[rf"{DEFENDER}\Real-Time Protection", "DisableRealtimeMonitoring"] = 1
    assert windows_pc.scanner_facts(read, names).is_scanning is False
