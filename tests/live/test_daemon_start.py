"""How `create(data=DIR)` starts a daemon: by an interpreter only, with nothing to read for others, in few words."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import acqstream
from acqstream.client import directory_daemon
from acqstream.errors import ConfigError, DaemonUnavailable
from acqstream.storage.platform.detached_process import DetachedProcess
from tests.host_system import make_link
from tests.live.embedded_daemons import EmbeddedDaemons
from tests.waiting import until

BACKPORT = "from collections import Sequence  # as pathlib 1.0.1: no Python since 3.10 can import it\n"
SCRIPT = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in str(finder)]
sys.path[:] = [path for path in sys.path if path not in ("", sys.argv[3])] + [sys.argv[2]]
import acqstream, numpy
assert acqstream.__file__.startswith(sys.argv[2])
with acqstream.create("cells", data=sys.argv[1]) as run:
    run.put(numpy.zeros((8, 8), "u2"))
print(run.receipt.status)
"""


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[EmbeddedDaemons]:
    found = EmbeddedDaemons(tmp_path)
    yield found
    found.end()


@pytest.mark.skipif(os.name == "nt", reason="a shell script stands for the program")
@pytest.mark.parametrize("is_frozen", [True, False])
def test_a_program_without_an_interpreter_is_not_started_again(
    tmp_path: Path, is_frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / ("python3" if is_frozen else "scope-app")
    program.write_text(f"#!/bin/sh\necho started >> {tmp_path}/log\nexec sleep 90\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(sys, "frozen", is_frozen, raising=False)
    (tmp_path / "data").mkdir()
    with pytest.raises(ConfigError, match="no Python interpreter to start a daemon with") as caught:
        acqstream.create("cells", data=tmp_path / "data", patience_s=5)
    assert "run `acqstream serve`" in str(caught.value)
    assert not (tmp_path / "log").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_environment_is_in_no_command_line_and_may_be_large(tmp_path: Path) -> None:
    variables = {"LAB_SERVER_PASSWORD": "example-of-a-secret", **{f"LARGE_{n}": "x" * 100_000 for n in range(5)}}
    report = "import os; print(os.environ['LAB_SERVER_PASSWORD'], len(os.environ['LARGE_4'])); input()"
    process = DetachedProcess([sys.executable, "-c", report], {**os.environ, **variables}, tmp_path)
    until(lambda: process.exit_code is not None or process.output(), "the process reports")
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.parent.exists()]
    assert not any(b"example-of-a-secret" in command for command in commands)
    assert "example-of-a-secret 100000" in process.output()
    process.release()


def test_an_old_backport_beside_the_package_stops_no_daemon(daemons: EmbeddedDaemons, tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "pathlib.py").write_text(BACKPORT)
    package = Path(acqstream.__file__).parent
    make_link(site / "acqstream", package)
    assert daemons.run(SCRIPT, str(site), str(package.parent)).strip() == "completed"


def test_a_checkout_comes_last_in_the_module_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setattr(acqstream, "__file__", os.path.join("/home/me/checkout", "acqstream", "__init__.py"))
    assert directory_daemon._environment()["PYTHONPATH"] == os.pathsep.join(["/mine", "/home/me/checkout"])
    for site in ("/usr/lib/python3/dist-packages", r"/venv/Lib/site-packages"):
        monkeypatch.setattr(acqstream, "__file__", os.path.join(site, "acqstream", "__init__.py"))
        assert directory_daemon._environment()["PYTHONPATH"] == "/mine"


def test_a_failed_start_is_told_in_ten_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / directory_daemon.LOG_NAME).write_text("".join(f"line {n}\n" for n in range(50)))
    source = "import sys; [print('word ' * 1000) for _ in range(50)]; sys.exit(3)"
    monkeypatch.setattr(directory_daemon, "_command", lambda *_: [sys.executable, "-c", source])
    with pytest.raises(DaemonUnavailable, match="ended with exit code 3") as caught:
        acqstream.create("cells", data=tmp_path)
    lines = str(caught.value).splitlines()
    assert len(lines) == 10
    assert max(map(len, lines)) < 400
