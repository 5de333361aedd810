"""The daemon's entry in the service manager of each system."""

from __future__ import annotations

import os
import plistlib
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from acqstream.storage.platform import linux_pc, pc_facts, windows_pc
from acqstream.storage.platform.pc_facts import answers, run_tool

SYSTEMD = Path(__file__).resolve().parents[3] / "systemd"
COMMAND = [r"C:\Program Files\Python\python.exe", "-m", "acqstream", "serve", "--data", "D:\\my data\\"]
TASK = "{http://schemas.microsoft.com/windows/2004/02/mit/task}"

needs_scripts = pytest.mark.skipif(sys.platform == "win32", reason="the tool is a shell script")


class FakeTool:
    """A program of this name that notes its arguments and the content of the file that follows /XML."""

    def __init__(self, folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.notes, self.code, self.content = folder / "notes", folder / "code", folder / "content"
        script = folder / name
        script.write_text(
            f'#!/bin/sh\necho "$*" >> {self.notes}\ncase "$4" in /XML) cat "$5" > {self.content};; esac\n'
            f'[ -e {self.code} ] || exit 0\necho "access is denied" >&2\nexit "$(cat {self.code})"\n'
        )
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def calls(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []


def task(text: str) -> dict[str, str]:
    """Texts of the task's elements, by their path."""
    texts: dict[str, str] = {}

    def walk(element: ElementTree.Element, path: str) -> None:
        for child in element:
            name = f"{path}{child.tag.removeprefix(TASK)}"
            texts[name] = child.text or ""
            walk(child, f"{name}/")

    root = ElementTree.fromstring(text.encode("utf-16"))
    assert root.tag == f"{TASK}Task"
    walk(root, "")
    return texts


def test_the_task_starts_at_the_log_on_of_its_user_with_limited_rights() -> None:
    texts = task(windows_pc.definition(COMMAND, r"LAB\anna & co"))
    assert texts["Triggers/LogonTrigger/UserId"] == r"LAB\anna & co"
    assert texts["Principals/Principal/UserId"] == r"LAB\anna & co"
    assert texts["Principals/Principal/RunLevel"] == "LeastPrivilege"
    assert texts["Principals/Principal/LogonType"] == "InteractiveToken"


def test_the_task_is_not_ended_by_the_defaults_of_the_task_scheduler() -> None:
    """Its defaults: at most 3 days, on mains power, priority 7 (below normal), which slows the disk too."""
    texts = task(windows_pc.definition(COMMAND, "anna"))
    assert texts["Settings/ExecutionTimeLimit"] == "PT0S"
    assert texts["Settings/Priority"] in {"4", "5", "6"}
    for name in ("DisallowStartIfOnBatteries", "StopIfGoingOnBatteries", "IdleSettings/StopOnIdleEnd"):
        assert texts[f"Settings/{name}"] == "false"


def test_the_task_has_no_window_and_quotes_its_paths() -> None:
    texts = task(windows_pc.definition(COMMAND, "anna"))
    assert texts["Actions/Exec/Command"] == r"C:\Program Files\Python\pythonw.exe"
    assert texts["Actions/Exec/Arguments"] == r'-m acqstream serve --data "D:\my data\\"'


@needs_scripts
def test_the_task_is_made_and_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = FakeTool(tmp_path, "schtasks", monkeypatch)
    monkeypatch.setenv("USERDOMAIN", "LAB")
    monkeypatch.setenv("USERNAME", "anna")
    text = windows_pc.install(COMMAND, tmp_path / "logs" / "acqstream.log")
    assert r"LAB\anna" in text
    create, start = tool.calls()
    assert create.startswith("/Create /TN acqstream /XML ")
    assert create.endswith(" /F")
    assert start == "/Run /TN acqstream"
    texts = task(tool.content.read_bytes().decode("utf-16"))  # with a byte order mark, as schtasks expects
    assert texts["Actions/Exec/Arguments"].endswith(f"--log {tmp_path / 'logs' / 'acqstream.log'}")
    assert (tmp_path / "logs").is_dir()
    assert windows_pc.is_installed()
    windows_pc.remove()
    assert tool.calls()[2:] == ["/Query /TN acqstream", "/Delete /TN acqstream /F"]


@needs_scripts
def test_a_refusal_names_the_command_and_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = FakeTool(tmp_path, "schtasks", monkeypatch)
    tool.code.write_text("1")
    with pytest.raises(OSError, match=r"schtasks /Create.*ended with 1: access is denied"):
        windows_pc.install(COMMAND, tmp_path / "log")
    assert not windows_pc.is_installed()


def test_the_unit_of_the_project_is_the_one_that_is_installed() -> None:
    words = ["%h/.local/bin/acqstream", "serve", "--config", "%E/acqstream/acqstream.toml"]
    assert linux_pc.definition(words) == (SYSTEMD / "user" / "acqstream.service").read_text("utf-8")


@needs_scripts
def test_the_unit_is_written_and_enabled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = FakeTool(tmp_path, "systemctl", monkeypatch)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert not linux_pc.is_installed()
    linux_pc.install(["/opt/a b/python", "-m", "acqstream", "--data", '/d/100% $x "y"'], tmp_path / "log")
    unit = tmp_path / "config" / "systemd" / "user" / "acqstream.service"
    line = 'ExecStart="/opt/a b/python" "-m" "acqstream" "--data" "/d/100%% $$x \\"y\\""'
    assert line in unit.read_text().splitlines()
    assert linux_pc.is_installed()
    linux_pc.remove()
    assert not unit.exists()
    assert tool.calls() == [
        "--user daemon-reload",
        "--user enable --now acqstream.service",
        "--user is-enabled acqstream.service",
        "--user disable --now acqstream.service",
        "--user daemon-reload",
    ]


def test_the_agent_of_the_project_starts_the_daemon_again_if_it_fails() -> None:
    agent = plistlib.loads((SYSTEMD / "macos" / "org.acqstream.daemon.plist").read_bytes())
    assert "serve" in agent["ProgramArguments"]
    assert agent["KeepAlive"] == {"SuccessfulExit": False}  # launchd.plist(5)


def test_a_system_without_a_known_service_manager_says_so(tmp_path: Path) -> None:
    assert not pc_facts.is_installed()
    for call in (lambda: pc_facts.install(["acqstream"], tmp_path), pc_facts.remove):
        with pytest.raises(OSError, match="does not know the service manager"):
            call()


def test_winsw_ends_the_daemon_by_a_request_and_waits() -> None:
    root = ElementTree.parse(SYSTEMD / "windows" / "acqstream-service.xml").getroot()
    texts = {child.tag: child.text or "" for child in root}
    assert texts["stoparguments"].split()[0] == "shutdown"
    assert texts["stopexecutable"] == texts["executable"]
    assert int(texts["stoptimeout"].split()[0]) > 300
    assert not {"argument", "arguments"} & texts.keys()  # with stoparguments, WinSW wants startarguments


def test_each_version_of_winsw_finds_the_account() -> None:
    """XmlServiceConfig.cs of v2.12.0 reads domain and user, that of v3.0.0-alpha.11 reads username."""
    account = ElementTree.parse(SYSTEMD / "windows" / "acqstream-service.xml").getroot().find("serviceaccount")
    assert account is not None
    texts = {child.tag: child.text or "" for child in account}
    assert f"{texts['domain']}\\{texts['user']}" == texts["username"] == r"NT AUTHORITY\LocalService"


def test_a_missing_tool_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        run_tool(["acqstream-no-such-tool"])
    with pytest.raises(FileNotFoundError):
        answers(["acqstream-no-such-tool"])
